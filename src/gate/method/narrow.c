// Owns narrowing a listed tool's inputSchema to the values that its caller may pass, by adding or shortening an `enum`.
//
// Every other byte stays as the server sent it. A schema that cannot be narrowed without the risk of excluding an allowed value stays
// unchanged. The policy decides the call itself, independently of the list.
#include "base/arena.h"
#include "base/scan.h"
#include "mcp/rewrite.h"
#include "rows.h"
#include <stdlib.h>

enum { PROPERTIES_MAX = 32, TOKENS_MAX = 2 };

struct narrowing {
    struct arena arena;
    struct rewrite_rule rules[PROPERTIES_MAX];
    const json_t *values[PROPERTIES_MAX];
    size_t count;
};

// ---- paths ----------------------------------------------------------------------------------

// The next token of a JSON Pointer, unescaped in place; *at moves to the '/' of the one after it, or to the end.
static const char *next_token(char **at)
{
    char *token = *at + 1, *to = token, *from = token;
    for (; *from && *from != '/'; from++) {
        bool escape = *from == '~' && (from[1] == '0' || from[1] == '1');
        *to++ = (char)(!escape ? *from : *++from == '0' ? '~' : '/');
    }
    bool last = !*from;
    *at = last ? NULL : from;
    *to = '\0';
    return token;
}

// "/a/b" is inputSchema, properties, a, properties, b. False: it does not fit.
static bool put_path(struct narrowing *all, const char *pointer, struct rewrite_rule *rule)
{
    size_t depth = 1;
    struct span copy = arena_span(&all->arena, span_make(pointer, strlen(pointer) + 1));
    char *at = *pointer == '/' ? (char *)(uintptr_t)copy.at : NULL;
    *rule = (struct rewrite_rule){.path = {"inputSchema"}, .what = (int)all->count};
    for (int tokens = 0; at; tokens++) {
        if (tokens == TOKENS_MAX)
            return false;
        rule->path[depth++] = "properties";
        rule->path[depth++] = next_token(&at);
        if (strcmp(rule->path[depth - 1], "*") == 0 || strncmp(rule->path[depth - 1], "*:", 2) == 0)
            return false;  // rewrite_json() takes it for the elements of an array
    }
    return depth > 1;
}

// True if another pointer is a prefix of this one. Then only the outer one is rewritten.
static bool is_inside(const json_t *narrowing, const char *pointer)
{
    const char *other;
    json_t *values;
    json_object_foreach((json_t *)(uintptr_t)narrowing, other, values) {
        size_t len = strlen(other);
        if (strncmp(pointer, other, len) == 0 && pointer[len] == '/')
            return true;
    }
    return false;
}

// ---- values ---------------------------------------------------------------------------------

static void put_values(const json_t *values, struct buf *out)
{
    char *text = json_dumps(values, JSON_COMPACT);
    buf_put_text(out, text ? text : "[]");
    free(text);
}

// True if the caller may pass this element of an enum. An element that cannot be read is kept.
static bool is_allowed(const json_t *values, struct span element)
{
    json_t *value = json_loadb(element.at, element.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool allowed = !value || policy_condition_has(values, value);
    json_decref(value);
    return allowed;
}

// Puts the elements of the server's own enum that are left. False: no element is left, or all are.
static bool put_shorter(const json_t *values, struct span list, struct buf *out)
{
    struct scan_walk walk = scan_walk(list);
    struct span element;
    size_t kept = 0, all = 0;
    buf_put_char(out, '[');
    for (; scan_element(&walk, &element); all++) {
        if (!is_allowed(values, element))
            continue;
        if (kept++)
            buf_put_char(out, ',');
        buf_put_span(out, element);
    }
    buf_put_char(out, ']');
    return kept > 0 && kept < all;
}

// Narrows the schema of one property.
static bool narrow_property(void *arg, int what, struct span raw, struct buf *out)
{
    const struct narrowing *all = arg;
    const json_t *values = all->values[what];
    struct span list, key, value;
    if (!scan_is_object(raw)) {
        if (span_is(raw, "true"))
            buf_put_text(out, "{\"enum\":");
        else
            return false;
        put_values(values, out);
        buf_put_char(out, '}');
        return true;
    }
    if (scan_find(raw, "enum", &list)) {
        buf_put(out, raw.at, (size_t)(list.at - raw.at));
        bool shorter = scan_is_array(list) && put_shorter(values, list, out);
        buf_put(out, list.at + list.len, (size_t)(raw.at + raw.len - list.at) - list.len);
        return shorter;
    }
    struct scan_walk members = scan_walk(raw);
    buf_put(out, raw.at, raw.len - 1);
    buf_put_text(out, scan_member(&members, &key, &value) ? ",\"enum\":" : "\"enum\":");
    put_values(values, out);
    buf_put_char(out, '}');
    return true;
}

void narrow_tool(struct span tool, const json_t *narrowing, struct buf *out)
{
    struct narrowing all = {0};
    const char *pointer;
    json_t *values;
    json_object_foreach((json_t *)(uintptr_t)narrowing, pointer, values) {
        if (all.count == PROPERTIES_MAX || is_inside(narrowing, pointer) ||
            !put_path(&all, pointer, &all.rules[all.count]))
            continue;
        all.values[all.count++] = values;
    }
    if (!all.count || !rewrite_json(tool, all.rules, all.count, narrow_property, &all, out))
        buf_put_span(out, tool);
    arena_release(&all.arena);
}
