// The process through which all child processes are started, so that none of them outlives this one.
#ifndef LOOP_SPAWNER_H
#define LOOP_SPAWNER_H

#include "base/err.h"
#include <stdbool.h>

// Forks the spawner. Call it first: it keeps the memory and the descriptor limit that the process has at this moment.
// Without this call, the first child_start() does it. Calling it again does nothing.
bool spawner_start(struct err *err) MUST_CHECK;
// Ends every process that was started through it, and waits a moment for their end.
void spawner_stop(void);

#endif
