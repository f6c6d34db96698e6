// Owns the names of MCP's log levels.
#include "level.h"
#include "base/scan.h"

static const char *const names[] = {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

int level_parse(struct span raw_string)
{
    for (int i = 0; i < 8 && scan_is_string(raw_string); i++)
        if (scan_key_is(raw_string, names[i]))
            return i;
    return -1;
}

const char *level_text(int level) { return names[level]; }
