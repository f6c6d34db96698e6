// Owns the redaction of recorded arguments: the sensitive words, the pointers, and the walk that applies them.
//
// The walk works without a tree on text that the scanner accepted, so depth is bounded (SCAN_DEPTH_MAX). It copies the text
// except for redacted values, and stops as soon as the copy is too long. A pointer is a bit in a mask, which stays set
// while all steps so far match.
#include "redact.h"
#include "base/mem.h"
#include "base/pointer.h"
#include "base/scan.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const known[] = {
    "password", "passwd",     "passphrase",  "passcode",   "pwd",    "secret", "token", "authorization",
    "api_key",  "access_key", "private_key", "credential", "cookie", "bearer", "jwt",   NULL};

struct pointer {
    char **steps;
    size_t count;
};

struct redact {
    char **words;  // NULL at the end
    struct pointer pointers[REDACT_POINTERS_MAX];
    size_t pointer_count;
};

// ---- the rules ------------------------------------------------------------------------------

// Converts to lower case (ASCII) and removes separators of words.
static void simplify(struct span text, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];
        if (c != '_' && c != '-' && c != '.' && c != ' ')
            buf_put_char(out, c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c);
    }
}

static char *simple_word(const char *word)
{
    struct buf out = {0};
    simplify(span_of(word), &out);
    return buf_take(&out, NULL);
}

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct audit_redact *config = object;
    size_t count = 0;
    for (; config->pointers && config->pointers[count]; count++)
        if (!pointer_is_valid(config->pointers[count]))
            return err_set(err, ERR_CONFIG,
                           "%s: %s/pointers/%zu: not a JSON Pointer such as /user/email or /items/*/pin", place->file,
                           place->path, count);
    if (count > REDACT_POINTERS_MAX)
        return err_set(err, ERR_CONFIG, "%s: %s/pointers: at most %d are allowed", place->file, place->path,
                       REDACT_POINTERS_MAX);
    for (size_t i = 0; config->keys && config->keys[i]; i++) {
        char *word = simple_word(config->keys[i]);
        bool empty = !*word;
        free(word);
        if (empty)  // an empty word would match every key
            return err_set(err, ERR_CONFIG, "%s: %s/keys/%zu: has no letters", place->file, place->path, i);
    }
    return true;
}

#define AT(member) offsetof(struct audit_redact, member)
static const struct option rows[] = {
    {.name = "keys",
     .type = OPTION_STRINGS,
     .offset = AT(keys),
     .help = "Additional words. The value of a key that contains one of the words is removed, regardless of case, `_` "
             "and `-`. The built-in words are password, passwd, passphrase, passcode, pwd, secret, token, "
             "authorization, api_key, access_key, private_key, credential, cookie, bearer and jwt."},
    {.name = "pointers",
     .type = OPTION_STRINGS,
     .offset = AT(pointers),
     .help = "JSON Pointers to values in the arguments that are removed, such as `/user/email` or `/items/*/pin`; "
             "`*` stands for any element or member."},
    {0},
};
#undef AT
const struct option_table redact_options = {"Redaction (audit.redact)", sizeof(struct audit_redact), rows, check};

static struct pointer read_pointer(const char *text)
{
    struct pointer pointer = {0};
    struct buf step = {0};
    while (*text && pointer_step(&text, &step)) {
        pointer.steps = mem_resize(pointer.steps, (pointer.count + 1) * sizeof *pointer.steps);
        pointer.steps[pointer.count++] = mem_string(buf_text(&step));
    }
    buf_release(&step);
    return pointer;
}

struct redact *redact_new(const struct audit_redact *config)
{
    struct redact *rules = mem_new(struct redact);
    size_t more = 0, count = 0;
    while (config->keys && config->keys[more])
        more++;
    rules->words = mem_alloc((sizeof known / sizeof *known + more) * sizeof *rules->words);
    for (size_t i = 0; known[i]; i++)
        rules->words[count++] = simple_word(known[i]);
    for (size_t i = 0; i < more; i++)
        rules->words[count++] = simple_word(config->keys[i]);
    rules->words[count] = NULL;
    for (size_t i = 0; config->pointers && config->pointers[i] && i < REDACT_POINTERS_MAX; i++)
        rules->pointers[rules->pointer_count++] = read_pointer(config->pointers[i]);
    return rules;
}

void redact_free(struct redact *rules)
{
    if (!rules)
        return;
    for (char **word = rules->words; *word; word++)
        free(*word);
    free(rules->words);
    for (size_t i = 0; i < rules->pointer_count; i++) {
        for (size_t k = 0; k < rules->pointers[i].count; k++)
            free(rules->pointers[i].steps[k]);
        free(rules->pointers[i].steps);
    }
    free(rules);
}

// ---- the walk -------------------------------------------------------------------------------

struct walk {
    const struct redact *rules;
    struct buf *out;
    const char *copied;      // the text up to here is in `out`
    struct buf key, simple;  // of the current member
};

static void visit(struct walk *walk, struct span value, uint64_t live, size_t depth);

static void hide(struct walk *walk, struct span value)
{
    buf_put(walk->out, walk->copied, (size_t)(value.at - walk->copied));
    buf_put_text(walk->out, REDACT_MARK);
    walk->copied = value.at + value.len;
}

static bool tells(struct walk *walk)
{
    simplify(buf_span(&walk->key), &walk->simple);
    for (char **word = walk->rules->words; *word; word++)
        if (walk->simple.len && memmem(walk->simple.at, walk->simple.len, *word, strlen(*word)))
            return true;
    return false;
}

// The pointers that still match after this step; *ends: one of them ends here.
static uint64_t follow(const struct walk *walk, uint64_t live, size_t depth, struct span step, bool *ends)
{
    uint64_t left = 0;
    *ends = false;
    for (size_t i = 0; live && i < walk->rules->pointer_count; i++) {
        const struct pointer *pointer = &walk->rules->pointers[i];
        if (!(live >> i & 1) || pointer->count <= depth ||
            (strcmp(pointer->steps[depth], "*") != 0 && !span_is(step, pointer->steps[depth])))
            continue;
        left |= (uint64_t)1 << i;
        *ends = *ends || pointer->count == depth + 1;
    }
    return left;
}

static void visit_object(struct walk *walk, struct span object, uint64_t live, size_t depth)
{
    struct scan_walk members = scan_walk(object);
    struct span raw, value;
    bool ends;
    while (!walk->out->overflow && scan_member(&members, &raw, &value)) {
        buf_clear(&walk->key);
        scan_decode(raw, &walk->key);
        uint64_t left = follow(walk, live, depth, buf_span(&walk->key), &ends);
        if (ends || tells(walk))
            hide(walk, value);
        else
            visit(walk, value, left, depth + 1);
    }
}

static void visit_array(struct walk *walk, struct span array, uint64_t live, size_t depth)
{
    struct scan_walk elements = scan_walk(array);
    struct span value;
    for (size_t i = 0; !walk->out->overflow && scan_element(&elements, &value); i++) {
        char index[24];
        bool ends;
        snprintf(index, sizeof index, "%zu", i);
        uint64_t left = follow(walk, live, depth, span_of(index), &ends);
        if (ends)
            hide(walk, value);
        else
            visit(walk, value, left, depth + 1);
    }
}

static void visit(struct walk *walk, struct span value, uint64_t live, size_t depth)
{
    if (scan_is_object(value))
        visit_object(walk, value, live, depth);
    else if (scan_is_array(value))
        visit_array(walk, value, live, depth);
}

static void put_marker(const char *why, struct span json, struct buf *out)
{
    char digest[AUDIT_HASH_CHARS + 1];
    secret_digest_hex(json, digest);
    buf_printf(out, "\"[%s: %zu bytes, sha256 %s]\"", why, json.len, digest);
}

void redact_put(const struct redact *rules, struct span json, struct buf *out)
{
    struct buf copy = {.max = REDACT_MAX};
    struct walk walk = {.rules = rules, .out = &copy, .copied = json.at};
    if (!scan_is_object(json)) {
        put_marker("not an object", json, out);
        return;
    }
    visit(&walk, json, UINT64_MAX, 0);
    buf_put(&copy, walk.copied, (size_t)(json.at + json.len - walk.copied));
    if (copy.overflow)
        put_marker("too long", json, out);
    else
        buf_put_span(out, buf_span(&copy));
    buf_release(&copy);
    buf_release(&walk.key);
    buf_release(&walk.simple);
}
