// Owns the store as the loop sees it: the records, their worker, and jobs on their way.
#include "store/store.h"
#include "base/mem.h"
#include <stdlib.h>

enum { JOBS_MAX = 4096 };

struct store {
    struct offload *pool;
    struct record_store *records;  // the worker's
};

static void run(struct offload_job *offload)
{
    struct store_job *job = offload->arg;
    job->run(job, job->store->records);
}

static void done(struct offload_job *offload)
{
    struct store_job *job = offload->arg;
    job->done(job);
}

struct store *store_new(struct loop *loop, struct record_store *records, struct err *err)
{
    struct store *store = mem_new(struct store);
    store->records = records;
    if ((store->pool = offload_new(loop, JOBS_MAX, err)))
        return store;
    store_free(store);
    return NULL;
}

void store_free(struct store *store)
{
    if (!store)
        return;
    offload_free(store->pool);
    record_close(store->records);
    free(store);
}

bool store_start(struct store *store, struct store_job *job)
{
    job->store = store;
    job->offload = (struct offload_job){.run = run, .done = done, .arg = job};
    return offload_put(store->pool, &job->offload);
}

bool store_wait(struct store *store, int64_t timeout_ms) { return offload_wait(store->pool, timeout_ms); }
