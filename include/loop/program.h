// Programs to start: whether a command can be found.
#ifndef LOOP_PROGRAM_H
#define LOOP_PROGRAM_H

#include "base/err.h"
#include <stdbool.h>

// False, with the reason: child_start() would not find this command, in PATH or, with a slash in it, from `cwd` (NULL: the
// current folder).
bool program_check(const char *command, const char *cwd, struct err *err) MUST_CHECK;

#endif
