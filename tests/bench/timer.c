/* timer.c: delayed answers, in a binary heap ordered by due time. */
#include "timer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct timer *timer_heap;
static size_t timer_count, timer_cap;

uint64_t timer_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void swap(size_t a, size_t b)
{
    struct timer t = timer_heap[a];

    timer_heap[a] = timer_heap[b];
    timer_heap[b] = t;
}

void timer_add(unsigned delay_ms, int owner, unsigned generation, const char *text, size_t len)
{
    if (timer_count == timer_cap) {
        timer_cap = timer_cap ? timer_cap * 2 : 64;
        timer_heap = realloc(timer_heap, timer_cap * sizeof *timer_heap);
        if (!timer_heap) {
            fputs("out of memory\n", stderr);
            exit(3);
        }
    }
    size_t i = timer_count++;
    timer_heap[i] = (struct timer){.due_ms = timer_now_ms() + delay_ms, .owner = owner, .generation = generation};
    buf_append(&timer_heap[i].text, text, len);
    for (; i && timer_heap[i].due_ms < timer_heap[(i - 1) / 2].due_ms; i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

int timer_wait_ms(void)
{
    if (!timer_count)
        return -1;
    uint64_t now = timer_now_ms();
    return timer_heap[0].due_ms > now ? (int)(timer_heap[0].due_ms - now) : 0;
}

bool timer_take(struct timer *due)
{
    if (!timer_count || timer_heap[0].due_ms > timer_now_ms())
        return false;
    *due = timer_heap[0];
    timer_heap[0] = timer_heap[--timer_count];
    for (size_t i = 0, child = 1; child < timer_count; i = child, child = 2 * i + 1) {
        if (child + 1 < timer_count && timer_heap[child + 1].due_ms < timer_heap[child].due_ms)
            child++;
        if (timer_heap[i].due_ms <= timer_heap[child].due_ms)
            break;
        swap(i, child);
    }
    return true;
}
