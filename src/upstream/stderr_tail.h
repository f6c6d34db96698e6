// The last lines that a stdio server wrote to stderr.
#ifndef UPSTREAM_STDERR_TAIL_H
#define UPSTREAM_STDERR_TAIL_H

#include "base/buf.h"

enum { STDERR_TAIL_LINES = 50 };

// Zeroed, it is empty.
struct stderr_tail {
    char *lines[STDERR_TAIL_LINES];
    size_t count;  // lines so far; the oldest are overwritten
};

void stderr_tail_add(struct stderr_tail *tail, struct span line);
// Appends the last lines, at most `max`, with `between` between them.
void stderr_tail_put(const struct stderr_tail *tail, size_t max, const char *between, struct buf *out);
void stderr_tail_release(struct stderr_tail *tail);

#endif
