// Owns splicing replacements into JSON text by path.
#include "mcp/rewrite.h"
#include "base/scan.h"
#include <stdint.h>

struct rewrite {
    const struct rewrite_rule *rules;
    size_t count;
    rewrite_fn *fn;
    void *arg;
    struct buf *out;
    struct pieces *pieces;  // of rewrite_shared(), or NULL; `out` is its tail
    struct blob *owner;     // shares the unchanged parts
    const char *copied;     // everything before this is in `out`
    bool changed;
};

static void walk(struct rewrite *rewrite, struct span value, size_t depth, uint32_t active);

static void put_unchanged(struct rewrite *rewrite, const char *end)
{
    struct span text = span_make(rewrite->copied, (size_t)(end - rewrite->copied));
    if (rewrite->owner)
        pieces_share(rewrite->pieces, rewrite->owner, text);
    else
        buf_put_span(rewrite->out, text);
    rewrite->copied = end;
}

static void at_end(struct rewrite *rewrite, size_t rule, struct span value)
{
    struct buf replacement = {0};
    if (rewrite->fn(rewrite->arg, rewrite->rules[rule].what, value, &replacement)) {
        put_unchanged(rewrite, value.at);
        buf_put_span(rewrite->out, buf_span(&replacement));
        rewrite->copied = value.at + value.len;
        rewrite->changed = true;
    }
    buf_release(&replacement);
}

static bool is_star(const char *step) { return step[0] == '*' && (step[1] == '\0' || step[1] == ':'); }

// The `type` that a step requires, or NULL.
static const char *type_wanted(const char *step) { return is_star(step) && step[1] ? step + 2 : NULL; }

static bool has_type(struct span value, const char *type)
{
    struct span is;
    return scan_find(value, "type", &is) && scan_is_string(is) && scan_key_is(is, type);
}

static bool fits(const char *step, struct span key, struct span value)
{
    const char *type = type_wanted(step);
    if (key.at)
        return !is_star(step) && scan_key_is(key, step);
    return is_star(step) && (!type || has_type(value, type));
}

// Follows the rules whose next step is this member or element.
static void step(struct rewrite *rewrite, struct span key, struct span value, size_t depth, uint32_t active)
{
    uint32_t below = 0;
    for (size_t i = 0; i < rewrite->count; i++) {
        if (!(active >> i & 1))
            continue;
        const char *const *path = rewrite->rules[i].path;
        if (!fits(path[depth], key, value))
            continue;
        if (path[depth + 1])
            below |= 1U << i;
        else
            at_end(rewrite, i, value);
    }
    if (below)
        walk(rewrite, value, depth + 1, below);
}

// The rules whose next step matches an object in place of an array.
static uint32_t alone(const struct rewrite *rewrite, struct span object, size_t depth, uint32_t active)
{
    uint32_t mine = 0;
    for (size_t i = 0; i < rewrite->count; i++) {
        const char *type = active >> i & 1 ? type_wanted(rewrite->rules[i].path[depth]) : NULL;
        if (type && has_type(object, type))
            mine |= 1U << i;
    }
    return mine;
}

static void walk(struct rewrite *rewrite, struct span value, size_t depth, uint32_t active)
{
    struct scan_walk members = scan_walk(value);
    struct span key, item;
    uint32_t mine = scan_is_object(value) ? alone(rewrite, value, depth, active) : 0;
    if (mine)
        walk(rewrite, value, depth + 1, mine);
    else if (scan_is_object(value))
        while (scan_member(&members, &key, &item))
            step(rewrite, key, item, depth, active);
    else if (scan_is_array(value))
        while (scan_element(&members, &item))
            step(rewrite, (struct span){NULL, 0}, item, depth, active);
}

static uint32_t all(size_t count) { return count >= 32 ? UINT32_MAX : (1U << count) - 1; }

bool rewrite_json(struct span json, const struct rewrite_rule *rules, size_t count, rewrite_fn *fn, void *arg,
                  struct buf *out)
{
    struct rewrite rewrite = {.rules = rules, .count = count, .fn = fn, .arg = arg, .out = out, .copied = json.at};
    walk(&rewrite, json, 0, all(count));
    if (rewrite.changed)
        put_unchanged(&rewrite, json.at + json.len);
    return rewrite.changed;
}

void rewrite_shared(struct blob *owner, struct span json, const struct rewrite_rule *rules, size_t count,
                    rewrite_fn *fn, void *arg, struct pieces *out)
{
    struct rewrite rewrite = {rules, count, fn, arg, &out->tail, out, owner, json.at, false};
    if (count)
        walk(&rewrite, json, 0, all(count));
    put_unchanged(&rewrite, json.at + json.len);
}
