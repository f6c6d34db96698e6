// A span is a view of bytes that another object owns; never NUL-terminated, never freed.
#ifndef BASE_SPAN_H
#define BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
    const char *at;
    size_t len;
};

// For printf("%.*s", SPAN_ARG(s)).
#define SPAN_ARG(s) (int)(s).len, (s).at

static inline struct span span_of(const char *text) { return (struct span){text, text ? strlen(text) : 0}; }

static inline struct span span_make(const char *at, size_t len) { return (struct span){at, len}; }

static inline bool span_equal(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

static inline bool span_is(struct span a, const char *text) { return span_equal(a, span_of(text)); }

static inline bool span_starts(struct span a, const char *prefix)
{
    size_t n = strlen(prefix);
    return a.len >= n && memcmp(a.at, prefix, n) == 0;
}

static inline struct span span_after(struct span a, size_t skip)
{
    return skip >= a.len ? (struct span){a.at + a.len, 0} : (struct span){a.at + skip, a.len - skip};
}

// The text after a UTF-8 byte order mark, if any: JSON parsers may ignore it (RFC 8259, 8.1).
static inline struct span span_without_bom(struct span a)
{
    static const char mark[] = "\xEF\xBB\xBF";
    return span_starts(a, mark) ? span_after(a, sizeof mark - 1) : a;
}

// Only decimal digits, at most 18 of them.
static inline bool span_to_u64(struct span a, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < a.len; i++) {
        if (a.at[i] < '0' || a.at[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(a.at[i] - '0');
    }
    return a.len >= 1 && a.len <= 18;
}

#endif
