// Owns the names of MCP's log levels.
#include "level.h"

static const char *const names[] = {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"};

int level_parse(struct span raw_string)
{
    if (raw_string.len < 2)
        return -1;
    struct span text = span_make(raw_string.at + 1, raw_string.len - 2);
    for (int i = 0; i < 8; i++)
        if (span_is(text, names[i]))
            return i;
    return -1;
}

const char *level_text(int level) { return names[level]; }
