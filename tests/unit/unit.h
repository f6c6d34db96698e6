// What every unit test starts from: cmocka with the headers it needs, spans of literals, a few checks.
#ifndef UNIT_H
#define UNIT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// A string literal with its length, so that it may hold zero bytes: in initializers and as a span.
#define LIT(text) (text), sizeof(text) - 1
#define SPAN(text) (span_make((text), sizeof(text) - 1))
#define COUNT(array) (sizeof(array) / sizeof *(array))

static inline void assert_span_at(struct span got, struct span want, const char *label, const char *file, int line)
{
    if (span_equal(got, want))
        return;
    print_error("%s: got \"%.*s\", want \"%.*s\"\n", label, SPAN_ARG(got), SPAN_ARG(want));
    _fail(file, line);
}

// The span holds exactly these bytes; the label says which row of a table it was.
#define assert_span(got, want, label) assert_span_at((got), (want), (label), __FILE__, __LINE__)

// Where everything is slow, and posix_spawn() does not tell what went wrong.
static inline bool under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded && strstr(preloaded, "vgpreload");
}

static inline void assert_row_at(bool holds, const char *label, const char *file, int line)
{
    if (holds)
        return;
    print_error("row: %s\n", label ? label : "");
    _fail(file, line);
}

// The condition holds for the row of a table that the label shows.
#define assert_row(condition, label) assert_row_at((condition), (label), __FILE__, __LINE__)

#define assert_contains(text, part)                                      \
    do {                                                                 \
        if (!strstr((text), (part))) {                                   \
            print_error("\"%s\" does not say \"%s\"\n", (text), (part)); \
            _fail(__FILE__, __LINE__);                                   \
        }                                                                \
    } while (0)

#endif
