// Shared by all fuzz targets: the declaration of the entry point, and a check that aborts when an invariant is broken.
#ifndef FUZZ_H
#define FUZZ_H

#include "base/span.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#define REQUIRE(condition)                                                          \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

#define REQUIRE_SAME(a, b) REQUIRE(span_equal((a), (b)))

// True if the inner span lies within the outer one.
static inline bool span_inside(struct span inner, struct span outer)
{
    return inner.at >= outer.at && inner.at + inner.len <= outer.at + outer.len;
}

// The input before and after the first line feed; without one, the second part is empty.
static inline void fuzz_halves(struct span input, struct span *first, struct span *second)
{
    const char *newline = input.len ? memchr(input.at, '\n', input.len) : NULL;
    *first = newline ? span_make(input.at, (size_t)(newline - input.at)) : input;
    *second = span_after(input, first->len + 1);
}

#endif
