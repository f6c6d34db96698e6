// The offload pool: a worker thread for what blocks (SQLite, files) or computes for long (large messages), so that the loop
// never waits for it. The thread exists while there are jobs.
//
// A job is embedded in its owner. From offload_put() until `done` begins it belongs to the pool: `run` is called on the
// worker and may touch only what the job owns, then `done` on the loop's thread. Jobs run one after the other, in the
// order they were put. Everything here is called on the loop's thread.
#ifndef LOOP_OFFLOAD_H
#define LOOP_OFFLOAD_H

#include "base/list.h"
#include "loop/loop.h"

struct offload;

struct offload_job {
    struct list node;
    void (*run)(struct offload_job *job);   // on the worker
    void (*done)(struct offload_job *job);  // on the loop's thread; may put the job again
    void *arg;
};

// `limit`: how many jobs may wait, besides the one that runs.
struct offload *offload_new(struct loop *loop, size_t limit, struct err *err) MUST_CHECK;
// Its jobs compute rather than wait: the worker yields to the loop, which may have one processor to share with it. Before the
// first job.
void offload_set_background(struct offload *pool);
// Lets all jobs that were put run to their end and calls their `done`. Before loop_free(), and never from a `done`.
void offload_free(struct offload *pool);

// False: no room, no thread could be started, or the pool is being freed.
bool offload_put(struct offload *pool, struct offload_job *job) MUST_CHECK;
// True: the job had not begun, and neither `run` nor `done` will be called.
bool offload_take_back(struct offload *pool, struct offload_job *job) MUST_CHECK;
// Waits until no job waits or runs, or the time is over (false), and calls `done` of those that have finished. For a
// stop, outside of the loop's events.
bool offload_wait(struct offload *pool, int64_t timeout_ms);

#endif
