// The last lines that a stdio server wrote to stderr.
#ifndef UPSTREAM_STDERR_TAIL_H
#define UPSTREAM_STDERR_TAIL_H

#include "base/buf.h"

enum { STDERR_TAIL_BYTES = 32 << 10 };

// Zeroed, it is empty.
struct stderr_tail {
    struct buf text;  // whole lines, each with its line end
    size_t begun;     // where the lines of the process begin that was started last
};

void stderr_tail_begin(struct stderr_tail *tail);  // another process is started
void stderr_tail_add(struct stderr_tail *tail, struct span line);
// The last lines of the process that was started last, at most `max`, without the last line end.
struct span stderr_tail_last(const struct stderr_tail *tail, size_t max);
struct span stderr_tail_all(const struct stderr_tail *tail);  // those of earlier processes as well
void stderr_tail_release(struct stderr_tail *tail);

#endif
