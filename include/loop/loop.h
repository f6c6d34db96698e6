// The event loop: one thread that waits on descriptors and timers and runs deferred tasks.
//
// One turn is: wait, descriptor events, due timers, tasks, reaping. Event handlers must not free objects: loop_reap()
// frees at the end of the turn, so a stale event of the same turn still finds valid memory.
//
// A callback that runs for more than LOOP_STALL_MS holds up every caller: it is logged by its `name`, and counted.
#ifndef LOOP_LOOP_H
#define LOOP_LOOP_H

#include "base/err.h"
#include "base/list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;

#define LOOP_STALL_MS 20

#define LOOP_READ 1U
#define LOOP_WRITE 2U
#define LOOP_HANGUP 4U  // the peer has closed or shut down its side
#define LOOP_ONCE 8U    // edge-triggered: reported once

// A watched descriptor. Zero it, set fd, on_ready and arg, and embed it in its owner.
struct loop_watch {
    int fd;
    unsigned events;
    bool added;
    void (*on_ready)(struct loop_watch *watch, unsigned events);
    void *arg;
    const char *name;  // for the log if the callback stalls; may be NULL
};

// A timer is in the loop while `slot` is not 0.
struct loop_timer {
    int64_t due_ms;
    size_t slot;
    void (*on_due)(struct loop_timer *timer);
    void *arg;
    const char *name;
};

// A task runs once at the end of the turn in which it was put, even if it was put several times.
struct loop_task {
    struct list node;
    void (*run)(struct loop_task *task);
    void *arg;
    const char *name;
};

struct loop *loop_new(struct err *err) MUST_CHECK;
void loop_free(struct loop *loop);
void loop_run(struct loop *loop);  // until loop_stop()
void loop_stop(struct loop *loop);
int64_t loop_now(const struct loop *loop);    // monotonic ms, read once a turn
uint64_t loop_turn(const struct loop *loop);  // the number of the turn

// Adds, or changes the events of, a watch.
bool loop_watch(struct loop *loop, struct loop_watch *watch, unsigned events, struct err *err) MUST_CHECK;
void loop_unwatch(struct loop *loop, struct loop_watch *watch);  // before the descriptor is closed

void loop_timer_set(struct loop *loop, struct loop_timer *timer, int64_t after_ms);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);

void loop_task_put(struct loop *loop, struct loop_task *task);
// At the end of the next turn, after all other work of that turn: for work that is done in slices.
void loop_task_put_later(struct loop *loop, struct loop_task *task);
void loop_task_drop(struct loop_task *task);

void loop_reap(struct loop *loop, void *object, void (*release)(void *object));

// Names the current activity of the running callback, and the server it is for (or NULL), for the log if the callback
// stalls. The texts must outlive the callback.
void loop_note(struct loop *loop, const char *doing, const char *server);

struct loop_stalls {
    uint64_t count;      // callbacks that ran for more than LOOP_STALL_MS
    int64_t longest_ms;  // the longest of them; 0: no stall yet
};
struct loop_stalls loop_stalls(const struct loop *loop);

// Calls on_signal for SIGINT, SIGTERM and SIGHUP, from the loop.
bool loop_on_signal(struct loop *loop, void (*on_signal)(void *arg, int signal), void *arg, struct err *err) MUST_CHECK;

#endif
