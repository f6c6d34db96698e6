// Owns the recovery of a server's message that is not valid JSON, such as a list with invalid UTF-8 in one description.
//
// It matches strings and brackets as far as possible, in bounded time for any input. The results are not trusted: an id is only
// compared or sent back, and a list is parsed again.
#include "mcp/salvage.h"
#include "base/scan.h"

#define DEPTH_MAX (SCAN_DEPTH_MAX - 3)  // of an item in a list in a result in a message
#define INVALID_MAX 10000               // invalid items of a list, to bound the time

// Like scan_walk(), but also for a container without an end.
static struct scan_walk walk_inside(struct span container, char open)
{
    bool is_one = container.at && container.len && container.at[0] == open;
    return is_one ? (struct scan_walk){container.at + 1, container.at + container.len} : (struct scan_walk){0};
}

static bool next_member(struct scan_walk *walk, struct span *key, struct span *value)
{
    return walk->at && scan_member(walk, key, value) && scan_is_string(*key);
}

static bool is_key(struct span raw, const char *name) { return span_is(span_make(raw.at + 1, raw.len - 2), name); }

static bool is_valid(struct span element)
{
    struct span value;
    return scan_document(element, false, &value, &(struct err){0}) && scan_depth(value) <= DEPTH_MAX;
}

// True if the value is an id, and is not cut off by the end of the text.
static bool is_id(struct span value, struct span text)
{
    return (scan_is_string(value) || scan_is_number(value)) && value.len <= MESSAGE_ID_MAX && is_valid(value) &&
           value.at + value.len < text.at + text.len;
}

void salvage_find(struct span text, struct message *out)
{
    struct span key, value;
    bool asks = false, answers = false;
    size_t ids = 0;
    *out = (struct message){.text = text, .lines = true};
    for (; text.len && memchr(" \t\r\n", text.at[0], 4); text = span_after(text, 1))
        ;
    for (struct scan_walk walk = walk_inside(text, '{'); next_member(&walk, &key, &value);) {
        asks |= is_key(key, "method") || is_key(key, "params");
        answers |= is_key(key, "result") || is_key(key, "error");
        if (is_key(key, "id"))
            out->id = ++ids == 1 && is_id(value, text) ? value : (struct span){0};
        if (is_key(key, "result"))
            out->result = value;
    }
    out->role = asks ? MESSAGE_ASKS : answers ? MESSAGE_ANSWERS : MESSAGE_UNCLEAR;
}

bool salvage_parse(struct span text, struct message *out, struct err *err)
{
    if (message_parse(text, false, out, err))
        return true;
    if (err->code == ERR_PARSE)
        salvage_find(text, out);
    return false;
}

bool salvage_list(struct span text, struct span result, const char *member, struct buf *out)
{
    struct span key, list = {0}, element;
    const char *copied = text.at;
    size_t count = 0;
    for (struct scan_walk walk = walk_inside(result, '{'); !list.at && next_member(&walk, &key, &list);)
        if (!is_key(key, member))
            list = (struct span){0};
    struct scan_walk walk = walk_inside(list, '[');
    while (walk.at && scan_element(&walk, &element)) {
        if (is_valid(element))
            continue;
        if (++count > INVALID_MAX)
            return false;
        buf_put(out, copied, (size_t)(element.at - copied));
        buf_put_text(out, "null");
        copied = element.at + element.len;
    }
    if (copied == text.at)
        return false;
    buf_put(out, copied, (size_t)(text.at + text.len - copied));
    return true;
}
