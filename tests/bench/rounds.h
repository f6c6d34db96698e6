// The clock and percentiles, for programs that measure by themselves.
#ifndef BENCH_ROUNDS_H
#define BENCH_ROUNDS_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int by_size(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

// Sorts the values and returns the given percentile.
static inline int64_t percentile(int64_t *values, size_t count, size_t percent)
{
    qsort(values, count, sizeof *values, by_size);
    return values[count * percent / 100];
}

#endif
