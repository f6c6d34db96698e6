/* histogram.c: latencies in microseconds: 128 buckets for each power of two. */
#include "histogram.h"

#include <stddef.h>

enum { HISTOGRAM_BITS = 7, HISTOGRAM_SUB = 1 << HISTOGRAM_BITS, HISTOGRAM_POWERS = 32 };

static uint64_t histogram_counts[HISTOGRAM_POWERS * HISTOGRAM_SUB];
static uint64_t histogram_total, histogram_highest;

static size_t bucket_of(uint64_t us)
{
    unsigned shift = 0;

    while (us >> shift >= 2 * HISTOGRAM_SUB)
        shift++;
    if (shift >= HISTOGRAM_POWERS - 1)
        return HISTOGRAM_POWERS * HISTOGRAM_SUB - 1;
    return (size_t)shift * HISTOGRAM_SUB + (size_t)(us >> shift);
}

/* The highest value a bucket holds. */
static uint64_t value_of(size_t bucket)
{
    if (bucket < 2 * HISTOGRAM_SUB)
        return bucket;
    size_t shift = bucket / HISTOGRAM_SUB - 1;
    return ((uint64_t)(bucket - shift * HISTOGRAM_SUB + 1) << shift) - 1;
}

void histogram_add(uint64_t us)
{
    histogram_counts[bucket_of(us)]++;
    histogram_total++;
    if (us > histogram_highest)
        histogram_highest = us;
}

uint64_t histogram_quantile(double share)
{
    uint64_t rank = (uint64_t)(share * (double)histogram_total);
    uint64_t seen = 0;

    for (size_t i = 0; i < HISTOGRAM_POWERS * HISTOGRAM_SUB; i++) {
        seen += histogram_counts[i];
        if (seen > rank)
            return value_of(i) < histogram_highest ? value_of(i) : histogram_highest;
    }
    return histogram_highest;
}

uint64_t histogram_max(void) { return histogram_highest; }
