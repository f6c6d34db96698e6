// Owns glob matching: iterative, one remembered star, at worst pattern times text.
#include "base/glob.h"
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

bool glob_match(const char *pattern, struct span text)
{
    const char *p = pattern, *star = NULL;
    size_t t = 0, star_text = 0;
    while (t < text.len) {
        const char *here = p;
        int c = *p ? next(&p) : -2;
        if (c == -1) {
            star = p;
            star_text = t;
        } else if (c == (unsigned char)text.at[t]) {
            t++;
        } else if (star) {
            p = star;
            t = ++star_text;
        } else {
            p = here;
            return false;
        }
    }
    while (*p == '*')
        p++;
    return *p == '\0';
}

// A star stands for any run of any bytes, so only a star takes all of them: like a byte that no pattern has, which is NUL.
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
