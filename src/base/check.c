// Owns the end of a process whose invariants do not hold.
#include "base/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Straight to standard error: the log has a queue and a thread, and may be what is broken.
void check_failed(const char *condition, const char *file, int line)
{
    dprintf(STDERR_FILENO, "postern: invariant does not hold: %s (%s:%d)\n", condition, file, line);
    abort();
}
