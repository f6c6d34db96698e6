// Owns the look-ups in the error table, and setting an error.
#include "base/err.h"
#include "base/scan.h"
#include <stdarg.h>
#include <stdio.h>

struct err_row {
    int http, rpc;
    const char *reason, *text;
};

static const struct err_row rows[ERR_CODES] = {
#define X(name, http, rpc, reason, text) {http, rpc, reason, text},
    ERR_TABLE(X)
#undef X
};

bool err_set_at(struct err *err, enum err_code code, const char *where, const char *format, ...)
{
    if (!err)
        return false;
    err->code = code;
    err->where = where;
    err->retry_after_ms = err->option_ms = 0;
    err->option = NULL;
    va_list args;
    va_start(args, format);
    vsnprintf(err->detail, sizeof err->detail, format, args);
    va_end(args);
    // A text that was cut, here or by the caller's format, may end inside a character.
    scan_mend(err->detail, strlen(err->detail));
    return false;
}

int err_http_status(enum err_code code) { return rows[code].http; }
int err_rpc_code(enum err_code code) { return rows[code].rpc; }
const char *err_reason(enum err_code code) { return rows[code].reason; }
const char *err_text(enum err_code code) { return rows[code].text; }
