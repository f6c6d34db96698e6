// Owns the end of a process whose invariants do not hold.
#include "base/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// Writes to standard error directly: the log has a queue and a thread, and may itself be broken.
void check_failed(const char *condition, const char *file, int line)
{
    dprintf(STDERR_FILENO, "postern: invariant does not hold: %s (%s:%d)\n", condition, file, line);
    abort();
}
