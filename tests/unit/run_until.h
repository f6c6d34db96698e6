// Runs the loop of a test until a condition holds.
#ifndef RUN_UNTIL_H
#define RUN_UNTIL_H

#include "base/clock.h"
#include "loop/loop.h"
#include "unit.h"

#define RUN_UNTIL_MS (under_valgrind() ? 120000 : 60000)

static inline void run_until_on_tick(struct loop_timer *timer) { loop_stop(timer->arg); }

// Runs everything that is due now.
static inline void run_loop_briefly(struct loop *loop)
{
    struct loop_timer tick = {.on_due = run_until_on_tick, .arg = loop};
    loop_timer_set(loop, &tick, 1);
    loop_run(loop);
    loop_timer_stop(loop, &tick);
}

// The condition is an expression, evaluated about once a millisecond; the test fails if it does not come true.
#define run_loop_until(loop, condition)                                            \
    do {                                                                           \
        int64_t run_end = clock_now_ms() + RUN_UNTIL_MS;                           \
        while (!(condition)) {                                                     \
            if (clock_now_ms() > run_end) {                                        \
                print_message("not within %d ms: %s\n", RUN_UNTIL_MS, #condition); \
                fail();                                                            \
            }                                                                      \
            run_loop_briefly(loop);                                                \
        }                                                                          \
    } while (0)

#endif
