/* histogram.h: latencies in microseconds, kept to within one per cent in fixed memory. */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <stdint.h>

void histogram_add(uint64_t us);
/* The latency that the given share (0 to 1) of all calls did not exceed. */
uint64_t histogram_quantile(double share);
uint64_t histogram_max(void);

#endif
