// Time: a monotonic clock for deadlines, the wall clock for people.
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t clock_now_ms(void);      // monotonic
int64_t clock_now_us(void);      // monotonic
int64_t clock_wall_ms(void);     // since the epoch
int64_t clock_wall_s(void);      // the same in seconds
void clock_stamp(char out[32]);  // wall clock, RFC 3339 with milliseconds, UTC

#endif
