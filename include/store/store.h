// Records for the loop: jobs that use a record store run on a worker of its own, so that the loop never waits for a disk.
//
//     static void run(struct store_job *job, struct record_store *records) { … record_get(records, …) … }   // worker
//     static void done(struct store_job *job) { … }                                                         // loop
//
// A job is embedded in its owner and belongs to the store from store_start() until `done` begins. Jobs run one after the
// other, in order; `run` may touch only what the job owns.
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "loop/loop.h"
#include "loop/offload.h"
#include "store/record.h"

struct store;

struct store_job {
    void (*run)(struct store_job *job, struct record_store *records);
    void (*done)(struct store_job *job);
    void *arg;
    struct offload_job offload;  // the store's own
    struct store *store;
};

// Starts the worker. The records belong to the store from now on, also if this fails.
struct store *store_new(struct loop *loop, struct record_store *records, struct err *err) MUST_CHECK;
// Lets all jobs that were started run, calls their `done`, and closes the records. Before loop_free(), and never from a
// `done`.
void store_free(struct store *store);

// Changes of the records by any process. They may be reported too often, and are never reported where the system does not
// support it (records in memory, a network file system).
enum store_news {
    STORE_WRITING,  // this or another process is writing; the change can be read in a moment
    STORE_CLOSED,   // another process has closed the records: all of its changes can be read
};
void store_watch(struct store *store, void (*on_news)(void *arg, enum store_news news), void *arg);

bool store_start(struct store *store, struct store_job *job) MUST_CHECK;  // false: too many are waiting
// Waits until all jobs are done, or the time is over (false). For commands, which have nothing else to do, and for shutting
// down; not from an event of the loop.
bool store_wait(struct store *store, int64_t timeout_ms);

#endif
