/* pattern.h: a long text that is the same in the upstream, which sends it, and in the load generator, which checks it. */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the first len bytes of the text: letters only, and no part of it is like another. */
void pattern_fill(char *out, size_t len);
bool pattern_matches(const char *text, size_t len);

#endif
