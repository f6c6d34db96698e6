// Owns glob matching: iterative, one remembered star, at worst pattern times text.
#include "base/glob.h"

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
