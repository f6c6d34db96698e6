// MCP's log levels, by number: debug is 0.
#ifndef GATE_LEVEL_H
#define GATE_LEVEL_H

#include "state.h"

int level_parse(struct span raw_string);  // raw JSON; -1 if it is none

// Which level a server is asked for: the lowest that a session wants which may use anything of it.
void level_push(struct link *link);                                         // asks, if it has another one
void level_set(struct link *link, const struct session *session);           // the session has set its own
void level_session_ends(struct link *link, const struct session *session);  // it is no longer in its scope
void level_sweep(struct gate *gate);  // for servers that may be asked for less now

#endif
