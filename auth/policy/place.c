// Owns positions in a policy file: the lines of ids and of JSON Pointers.
//
// jansson does not report the lines of values, so the text is searched again.
#include "base/mem.h"
#include "base/pointer.h"
#include "base/scan.h"
#include "source.h"
#include <stdlib.h>

static struct span skip_blanks(struct span text)
{
    while (text.len && memchr(" \t\r\n", text.at[0], 4))
        text = span_after(text, 1);
    return text;
}

// True if the text begins with `"id" : "<id>"`.
static bool is_id_at(struct span text, struct span id)
{
    if (!span_starts(text, "\"id\""))
        return false;
    text = skip_blanks(span_after(text, 4));
    if (!span_starts(text, ":"))
        return false;
    text = skip_blanks(span_after(text, 1));
    return text.len >= id.len + 2 && text.at[0] == '"' && memcmp(text.at + 1, id.at, id.len) == 0 &&
           text.at[id.len + 1] == '"';
}

// Looks for the id in the rest of the text, and advances it together with *line.
static bool find_id(struct span *rest, int *line, const char *id)
{
    struct span text = *rest;
    for (const char *quote; (quote = text.len ? memchr(text.at, '"', text.len) : NULL);) {
        text = span_after(text, (size_t)(quote - text.at));
        if (is_id_at(text, span_of(id))) {
            for (const char *at = rest->at; at < quote; at++)
                *line += *at == '\n';
            *rest = span_after(text, 4);
            return true;
        }
        text = span_after(text, 1);
    }
    return false;
}

int policy_place_id(const struct policy_file *file, const char *id)
{
    int line = 1;
    struct span rest = span_of(file->text);
    return id && find_id(&rest, &line, id) ? line : 0;
}

void policy_place_ids(struct policy_file *file)
{
    struct policy_rule *rules = file->rules.at;
    struct span rest = span_of(file->text);
    int line = 1;
    for (size_t i = 0; i < file->rules.count; i++)
        rules[i].line = rules[i].id && find_id(&rest, &line, rules[i].id) ? line : 0;
}

// The id of the rule that a JSON Pointer leads into, or NULL.
const char *policy_place_rule(const struct policy_file *file, const char *pointer)
{
    if (strncmp(pointer, "/rules/", 7) != 0)
        return NULL;
    const json_t *rule = json_array_get(json_object_get(file->tree, "rules"), strtoul(pointer + 7, NULL, 10));
    return json_string_value(json_object_get(rule, "id"));
}

// ---- pointers -------------------------------------------------------------------------------

void policy_place_put(struct buf *pointer, const char *key)
{
    buf_put_char(pointer, '/');
    for (; *key; key++)
        if (*key == '~' || *key == '/')
            buf_put_text(pointer, *key == '~' ? "~0" : "~1");
        else
            buf_put_char(pointer, *key);
}

// Steps into a value by one key or index, which it also returns; false if there is no such member.
static bool step_into(struct span value, const char *step, const char **at, struct span *out)
{
    struct scan_walk walk = scan_walk(value);
    struct span key;
    size_t left = strtoul(step, NULL, 10);
    if (scan_is_array(value)) {
        while (scan_element(&walk, out))
            if (left-- == 0) {
                *at = out->at;
                return true;
            }
        return false;
    }
    while (scan_is_object(value) && scan_member(&walk, &key, out))
        if (scan_key_is(key, step)) {
            *at = key.at;
            return true;
        }
    return false;
}

// The line that a pointer leads to, or of the deepest part of it that exists.
static int line_of(struct span text, struct span document, const char *pointer)
{
    struct buf step = {0};
    const char *at = document.at;
    struct span inner;
    int line = 1;
    while (*pointer && pointer_step(&pointer, &step) && step_into(document, buf_text(&step), &at, &inner))
        document = inner;
    for (const char *one = text.at; one < at; one++)
        line += *one == '\n';
    buf_release(&step);
    return line;
}

void policy_place_findings(const struct policy_source *source, struct policy_findings *findings)
{
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_file *file = &source->files[i];
        struct span text = span_of(file->text), document;
        if (!file->tree || !scan_document(text, false, &document, &(struct err){0}))
            continue;
        for (size_t k = 0; k < findings->count; k++) {
            struct policy_finding *one = &findings->at[k];
            if (one->line || one->text[0] != '/' || strcmp(one->file, file->path) != 0)
                continue;
            char *pointer = mem_copy(one->text, strcspn(one->text, ": "));
            one->line = line_of(text, document, pointer);
            if (!one->rule)
                one->rule = mem_string(policy_place_rule(file, pointer));
            free(pointer);
        }
    }
}
