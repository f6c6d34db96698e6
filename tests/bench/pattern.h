/* pattern.h: a long text that is the same in the upstream, which sends it, and in the load generator, which checks it. */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stddef.h>

/* The first len bytes of the text, letters only; valid until the next call. */
const char *pattern(size_t len);

#endif
