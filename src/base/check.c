// Owns the end of a process whose invariants do not hold.
#include "base/check.h"
#include "base/log.h"
#include <stdlib.h>

void check_failed(const char *condition, const char *file, int line)
{
    log_error("invariant does not hold", LOG_STR("condition", condition), LOG_STR("file", file), LOG_INT("line", line));
    log_finish();
    abort();
}
