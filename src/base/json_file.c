// Owns JSON files that people write.
//
// What JSON does not have is overwritten with spaces, so that the text keeps its length and jansson reports the right positions.
#include "base/json_file.h"
#include "base/scan.h"
#include <stdlib.h>

static void blank(char *at, const char *end)
{
    for (; at < end; at++)
        if (*at != '\n' && *at != '\r')
            *at = ' ';
}

static bool begins_comment(const char *at, const char *end)
{
    return end - at >= 2 && at[0] == '/' && (at[1] == '/' || at[1] == '*');
}

// The first character after a comment, or NULL: the comment does not end.
static char *comment_end(char *at, char *end)
{
    if (at[1] == '/') {
        char *line = memchr(at, '\n', (size_t)(end - at));
        return line ? line : end;
    }
    for (at += 2; (at = memchr(at, '*', (size_t)(end - at))); at++)
        if (at + 1 < end && at[1] == '/')
            return at + 2;
    return NULL;
}

static char *string_end(char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\' && at + 1 < end)
            at++;
    return at < end ? at + 1 : at;
}

static void strip(struct buf *text)
{
    char *at = text->at, *end = at + text->len, *comma = NULL, *after;
    char before = ',';  // the last character that is neither space nor in a comment
    if (text->len >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0)
        blank(at, at + 3);
    while (at < end) {
        if (begins_comment(at, end)) {
            if (!(after = comment_end(at, end)))
                return;  // jansson refuses the text there
            blank(at, after);
            at = after;
            continue;
        }
        char c = *at;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            at++;
            continue;
        }
        if ((c == '}' || c == ']') && comma)
            *comma = ' ';
        comma = c == ',' && !strchr("{[,:", before) ? at : NULL;
        before = c;
        at = c == '"' ? string_end(at, end) : at + 1;
    }
}

json_t *json_file_parse(const char *path, struct buf *text, struct err *err)
{
    if (!json_read_file(path, text, err))
        return NULL;
    strip(text);
    return json_parse(buf_span(text), path, err);
}

// ---- positions ------------------------------------------------------------------------------

// The key at the start of the path, whose keys are not escaped. 0: another one.
static size_t match_key(struct span raw_key, const char *path)
{
    struct buf key = {0};
    if (scan_is_string(raw_key))
        scan_decode(raw_key, &key);
    size_t len = key.len;
    bool same = len && strncmp(buf_text(&key), path, len) == 0 && (path[len] == '/' || !path[len]);
    buf_release(&key);
    return same ? len : 0;
}

// One step along the path. `found` becomes the key or the element.
static bool enter(struct span *value, const char **path, const char **found)
{
    const char *rest = *path + 1;
    struct scan_walk walk = scan_walk(*value);
    struct span key, member, inner = {0};
    size_t best = 0;
    if (scan_is_object(*value)) {
        while (scan_member(&walk, &key, &member)) {
            size_t len = match_key(key, rest);
            if (len <= best)
                continue;
            best = len;
            inner = member;
            *found = key.at;
        }
    } else if (scan_is_array(*value)) {
        char *end;
        unsigned long index = strtoul(rest, &end, 10);
        for (unsigned long i = 0; end > rest && !best && scan_element(&walk, &member); i++)
            if (i == index) {
                best = (size_t)(end - rest);
                inner = member;
                *found = member.at;
            }
    }
    if (!best)
        return false;
    *value = inner;
    *path = rest + best;
    return true;
}

struct json_position json_file_position(struct span text, const char *path)
{
    struct span value;
    struct json_position position = {1, 1};
    if (!scan_document(text, false, &value, NULL))
        return position;
    const char *found = value.at;
    while (*path == '/' && enter(&value, &path, &found))
        continue;
    for (const char *at = text.at; at < found; at++) {
        position.column++;
        if (*at == '\n')
            position = (struct json_position){position.line + 1, 1};
    }
    return position;
}
