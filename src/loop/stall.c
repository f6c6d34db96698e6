// Owns the stall watchdog of the event loop: measures each callback, and its current activity, by the coarse clock.
//
// The coarse clock costs a tenth of the exact one and is accurate to a tick (4 ms or less), so every callback can be
// measured. A callback may have several activities in turn; the log line names the longest.
#include "stall.h"
#include "base/log.h"
#include <time.h>

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void stall_begin(struct stall *stall)
{
    stall->began_ms = stall->lap_ms = now_ms();
    stall->note = stall->slowest = (struct stall_note){0};
    stall->slowest_ms = 0;
}

static void end_lap(struct stall *stall)
{
    int64_t now = now_ms(), took = now - stall->lap_ms;
    if (took > stall->slowest_ms) {
        stall->slowest_ms = took;
        stall->slowest = stall->note;
    }
    stall->lap_ms = now;
}

void stall_note(struct stall *stall, const char *doing, const char *server)
{
    end_lap(stall);
    stall->note = (struct stall_note){doing, server};
}

static const char *or_dash(const char *text) { return text ? text : "-"; }

void stall_end(struct stall *stall, const char *kind, const char *name)
{
    end_lap(stall);
    int64_t took = stall->lap_ms - stall->began_ms;
    if (took <= LOOP_STALL_MS)
        return;
    stall->total.count++;
    if (took > stall->total.longest_ms)
        stall->total.longest_ms = took;
    log_warn("event loop stalled", LOG_INT("ms", took), LOG_STR("callback", name ? name : kind),
             LOG_STR("doing", or_dash(stall->slowest.doing)), LOG_STR("server", or_dash(stall->slowest.server)),
             LOG_INT("of_it_ms", stall->slowest_ms));
}
