// The offload pool: a worker thread for operations that block (SQLite, files) or compute for long (large messages), so
// that the loop never waits for them. The thread exists while there are jobs.
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

// `limit`: how many jobs may wait, not counting the running job.
struct offload *offload_new(struct loop *loop, size_t limit, struct err *err) MUST_CHECK;
// For jobs that compute rather than wait: the worker yields to the loop, which may share one processor with it. Call it
// before the first job.
void offload_set_background(struct offload *pool);
// Runs all jobs that were put to their end and calls their `done`. Call it before loop_free(), and never from a `done`.
void offload_free(struct offload *pool);

// False: the queue is full, no thread could be started, or the pool is being freed.
bool offload_put(struct offload *pool, struct offload_job *job) MUST_CHECK;
// True: the job had not begun, and neither `run` nor `done` will be called.
bool offload_take_back(struct offload *pool, struct offload_job *job) MUST_CHECK;
// Waits until no job waits or runs, and calls `done` of the finished jobs. False: the time is over. For a shutdown,
// outside of the loop's events.
bool offload_wait(struct offload *pool, int64_t timeout_ms);

#endif
