// Owns reading the clocks.
#include "base/clock.h"
#include <stdio.h>
#include <time.h>

int64_t clock_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t clock_now_ms(void) { return clock_now_us() / 1000; }

int64_t clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_wall_s(void) { return (int64_t)time(NULL); }

void clock_stamp(char out[32])
{
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t len = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + len, 32 - len, ".%03ldZ", now.tv_nsec / 1000000);
}
