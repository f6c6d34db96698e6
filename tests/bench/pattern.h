/* pattern.h: the long text that the upstream sends and the load generator expects. */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stddef.h>

/* The first len bytes of the text, letters only; valid until the next call. */
const char *pattern(size_t len);

#endif
