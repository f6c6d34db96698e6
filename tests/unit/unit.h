// Included by every unit test: cmocka with the headers it needs, spans of literals, a few checks.
#ifndef UNIT_H
#define UNIT_H

#include "base/blob.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// A string literal with its length, so that it may contain zero bytes; LIT is for initializers.
#define LIT(text) (text), sizeof(text) - 1
#define SPAN(text) (span_make((text), sizeof(text) - 1))
#define COUNT(array) (sizeof(array) / sizeof *(array))

// Runs only the tests whose names match the pattern in UNIT_TEST_FILTER (with * and ?), which tests/run -t sets.
__attribute__((constructor)) static void unit_filter(void)
{
    const char *pattern = getenv("UNIT_TEST_FILTER");
    if (pattern)
        cmocka_set_test_filter(pattern);
}

static inline struct blob *blob_copy(struct span bytes)
{
    struct buf copy = {0};
    buf_put_span(&copy, bytes);
    return blob_take(&copy);
}

static inline void assert_span_at(struct span got, struct span want, const char *label, const char *file, int line)
{
    if (span_equal(got, want))
        return;
    print_error("%s: got \"%.*s\", want \"%.*s\"\n", label, SPAN_ARG(got), SPAN_ARG(want));
    _fail(file, line);
}

// The span has exactly these bytes; the label names the row of a table.
#define assert_span(got, want, label) assert_span_at((got), (want), (label), __FILE__, __LINE__)

// Under valgrind everything is slow, and posix_spawn() does not report why a program could not start.
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

// The condition holds; the label names the row of a table.
#define assert_row(condition, label) assert_row_at((condition), (label), __FILE__, __LINE__)

// Runs a function in a child process, which must abort because of a CHECK().
static inline void assert_aborts_at(void (*run)(void), const char *file, int line)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        run();
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
        _fail(file, line);
}

#define assert_aborts(run) assert_aborts_at((run), __FILE__, __LINE__)

#define assert_contains(text, part)                                      \
    do {                                                                 \
        if (!strstr((text), (part))) {                                   \
            print_error("\"%s\" does not say \"%s\"\n", (text), (part)); \
            _fail(__FILE__, __LINE__);                                   \
        }                                                                \
    } while (0)

#endif
