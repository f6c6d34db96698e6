// The process through which all child processes are started, so that none of them outlives this one.
#ifndef LOOP_SPAWNER_H
#define LOOP_SPAWNER_H

#include "base/err.h"
#include <stdbool.h>

// Forks the spawner, which keeps the memory and the descriptor limit that the process has at this moment, so call it
// first. Without this call, the first child_start() makes it. A second call does nothing.
bool spawner_start(struct err *err) MUST_CHECK;
// Ends every process that was started through the spawner, and waits briefly for their end.
void spawner_stop(void);

#endif
