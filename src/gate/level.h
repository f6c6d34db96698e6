// The log levels of MCP, in order.
#ifndef GATE_LEVEL_H
#define GATE_LEVEL_H

#include "base/span.h"

#define LEVEL_UNSET 1  // info: what a session that never set a level is taken to want

int level_parse(struct span raw_string);  // -1 if it is none
const char *level_text(int level);

#endif
