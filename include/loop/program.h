// Checks whether the program of a command can be found.
#ifndef LOOP_PROGRAM_H
#define LOOP_PROGRAM_H

#include "base/err.h"
#include <stdbool.h>

// Whether child_start() would find this command, in PATH or, if it contains a slash, relative to `cwd` (NULL: the
// current folder). False: `err` gives the reason.
bool program_check(const char *command, const char *cwd, struct err *err) MUST_CHECK;

#endif
