/* timer.h: delayed answers. */
#ifndef BENCH_TIMER_H
#define BENCH_TIMER_H

#include "buf.h"

#include <stdbool.h>
#include <stdint.h>

struct timer {
    uint64_t due_ms;
    int owner;           /* number of the connection, chosen by the caller */
    unsigned generation; /* of that owner: its number may be used again */
    struct buf text;
};

uint64_t timer_now_ms(void);
/* Copies text and holds it for delay_ms. */
void timer_add(unsigned delay_ms, int owner, unsigned generation, const char *text, size_t len);
/* How long a poll may sleep: -1 when nothing is held. */
int timer_wait_ms(void);
/* Takes the next answer that is due; the caller frees its text. */
bool timer_take(struct timer *due);

#endif
