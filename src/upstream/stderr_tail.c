// Owns the last lines that a stdio server wrote to stderr: a ring buffer, which outlives the process.
#include "stderr_tail.h"
#include "base/mem.h"
#include <stdlib.h>

void stderr_tail_add(struct stderr_tail *tail, struct span line)
{
    char **slot = &tail->lines[tail->count++ % STDERR_TAIL_LINES];
    free(*slot);
    *slot = mem_span(line);
}

void stderr_tail_put(const struct stderr_tail *tail, size_t max, struct buf *out)
{
    size_t kept = tail->count < STDERR_TAIL_LINES ? tail->count : STDERR_TAIL_LINES;
    size_t first = tail->count - (kept < max ? kept : max);
    for (size_t i = first; i < tail->count; i++)
        buf_printf(out, "%s%s", i > first ? "\n" : "", tail->lines[i % STDERR_TAIL_LINES]);
}

void stderr_tail_release(struct stderr_tail *tail)
{
    for (size_t i = 0; i < STDERR_TAIL_LINES; i++)
        free(tail->lines[i]);
    *tail = (struct stderr_tail){0};
}
