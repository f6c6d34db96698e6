// Stalls: callbacks of the event loop that run too long. The log names the callback and its activity.
#ifndef LOOP_STALL_H
#define LOOP_STALL_H

#include "loop/loop.h"

struct stall_note {
    const char *doing, *server;  // NULL: unknown
};

struct stall {
    int64_t began_ms, lap_ms;  // when the callback began, and its current activity
    struct stall_note note;
    struct stall_note slowest;  // of this callback
    int64_t slowest_ms;
    struct loop_stalls total;
};

void stall_begin(struct stall *stall);  // before a callback
void stall_note(struct stall *stall, const char *doing, const char *server);
// After the callback: logs and counts it if it ran too long. `kind` is used if it has no name.
void stall_end(struct stall *stall, const char *kind, const char *name);

#endif
