// Owns how a command fails: one line on standard error, and the exit code.
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FAIL_CHARS 4096

int fail_with(int code, const char *format, ...)
{
    char text[FAIL_CHARS];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    output_tame(text, strlen(text), "\n\t");
    fprintf(stderr, "postern: %s\n", text);
    return code;
}

int fail_with_err(const struct err *err)
{
    bool config = err->code == ERR_CONFIG || err->code == ERR_PARSE;
    return fail_with(config ? EXIT_CONFIG : EXIT_UNAVAILABLE, "%s", err->detail);
}
