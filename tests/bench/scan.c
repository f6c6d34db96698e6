/* scan.c: finds members in JSON text; checks balance and quoting, not full grammar. */
#include "scan.h"

#include <string.h>

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* p is at the opening quote; returns the position after the closing quote, or NULL. */
static const char *skip_string(const char *p, const char *end)
{
    const char *start = ++p;

    while (p < end) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        if (!quote)
            return NULL;
        const char *back = quote;
        while (back > start && back[-1] == '\\')
            back--;
        if ((quote - back) % 2 == 0)
            return quote + 1;
        p = quote + 1;
    }
    return NULL;
}

static const char *skip_container(const char *p, const char *end)
{
    size_t depth = 0;

    while (p && p < end) {
        switch (*p) {
        case '"': p = skip_string(p, end); continue;
        case '{':
        case '[': depth++; break;
        case '}':
        case ']':
            if (--depth == 0)
                return p + 1;
            break;
        default: break;
        }
        p++;
    }
    return NULL;
}

static const char *skip_value(const char *p, const char *end)
{
    if (p >= end)
        return NULL;
    if (*p == '"')
        return skip_string(p, end);
    if (*p == '{' || *p == '[')
        return skip_container(p, end);
    const char *start = p;
    while (p < end &&
           (*p == '-' || *p == '+' || *p == '.' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || *p == 'E'))
        p++;
    return p > start ? p : NULL;
}

bool scan_whole(struct span text)
{
    const char *end = text.at + text.len;
    const char *p = skip_value(skip_space(text.at, end), end);

    return p && skip_space(p, end) == end;
}

bool scan_member(struct span object, const char *key, struct span *value)
{
    const char *end = object.at + object.len;
    const char *p = skip_space(object.at, end);
    size_t key_len = strlen(key);

    if (p >= end || *p != '{')
        return false;
    p = skip_space(p + 1, end);
    while (p < end && *p == '"') {
        const char *name = p + 1;
        p = skip_string(p, end);
        if (!p)
            return false;
        size_t name_len = (size_t)(p - 1 - name);
        p = skip_space(p, end);
        if (p >= end || *p != ':')
            return false;
        const char *start = skip_space(p + 1, end);
        p = skip_value(start, end);
        if (!p)
            return false;
        if (name_len == key_len && memcmp(name, key, key_len) == 0) {
            *value = (struct span){start, (size_t)(p - start)};
            return true;
        }
        p = skip_space(p, end);
        if (p >= end || *p != ',')
            return false;
        p = skip_space(p + 1, end);
    }
    return false;
}

struct span scan_string(struct span value)
{
    if (value.len < 2 || value.at[0] != '"')
        return (struct span){value.at, 0};
    return (struct span){value.at + 1, value.len - 2};
}

bool scan_is(struct span value, const char *text)
{
    return value.len == strlen(text) && memcmp(value.at, text, value.len) == 0;
}
