// Owns glob matching, in one pass over any pattern and text.
#include "base/glob.h"
#include "base/buf.h"
#include "base/mem.h"
#include <stdlib.h>

// One pattern character at *at: its byte, or -1 for a star.
static int next(const char **at)
{
    char c = *(*at)++;
    if (c == '*')
        return -1;
    if (c == '\\' && (**at == '*' || **at == '\\'))
        c = *(*at)++;
    return (unsigned char)c;
}

// The literal text at *pattern up to a star or the end, to which *pattern moves. A text with escapes is written to
// `room`.
static struct span take_literal(const char **pattern, struct buf *room)
{
    size_t plain = strcspn(*pattern, "*\\");
    struct span literal = span_make(*pattern, plain);
    *pattern += plain;
    if (**pattern != '\\')
        return literal;
    buf_clear(room);
    buf_put_span(room, literal);
    while (**pattern && **pattern != '*')
        buf_put_char(room, (char)next(pattern));
    return buf_span(room);
}

// After a star: finds each literal as early as possible, and the last one at the end of the text.
static bool match_rest(const char *pattern, struct span text, struct buf *room)
{
    for (;;) {
        while (*pattern == '*')
            pattern++;
        struct span literal = take_literal(&pattern, room);
        if (literal.len > text.len)
            return false;
        if (!*pattern)
            return !literal.len || memcmp(text.at + text.len - literal.len, literal.at, literal.len) == 0;
        const char *found = memmem(text.at, text.len, literal.at, literal.len);
        if (!found)
            return false;
        text = span_after(text, (size_t)(found - text.at) + literal.len);
    }
}

bool glob_match(const char *pattern, struct span text)
{
    size_t t = 0;
    while (*pattern && *pattern != '*') {
        if (t == text.len || next(&pattern) != (unsigned char)text.at[t])
            return false;
        t++;
    }
    if (!*pattern)
        return t == text.len;
    struct buf room = {0};
    bool yes = match_rest(pattern, span_after(text, t), &room);
    buf_release(&room);
    return yes;
}

// Only a star matches a star of the narrow pattern. So a star is replaced by a byte that no pattern contains: NUL.
bool glob_covers(const char *wide, const char *narrow)
{
    char *text = mem_alloc(strlen(narrow) + 1);
    size_t len = 0;
    while (*narrow) {
        int c = next(&narrow);
        text[len++] = c == -1 ? '\0' : (char)c;
    }
    bool yes = glob_match(wide, span_make(text, len));
    free(text);
    return yes;
}

bool glob_is_literal(const char *pattern)
{
    while (*pattern)
        if (next(&pattern) == -1)
            return false;
    return true;
}

bool glob_valid(const char *pattern)
{
    for (; *pattern; pattern++)
        if (*pattern == '\\' && *++pattern != '*' && *pattern != '\\')
            return false;
    return true;
}

struct span glob_unescape(const char *pattern, char *room, size_t size)
{
    size_t len = 0;
    while (*pattern && len < size)
        room[len++] = (char)next(&pattern);
    return span_make(room, len);
}
