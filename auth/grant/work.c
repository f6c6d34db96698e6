// Owns the works of the grant store: a request on its way to the worker and back.
//
//     grant_store_find ──► work (copies of its input) ──► worker: records, vault ──► cache, request ──► on_done
//
// A work belongs to the store, not to the request: a request may be cancelled and freed while its work is on the
// worker.
#include "work.h"
#include "base/mem.h"
#include "encoding.h"
#include <stdlib.h>

static void work_free(struct grant_work *work)
{
    list_remove(&work->node);
    buf_release(&work->key);
    buf_wipe(&work->plain);
    attempt_free(work->attempt);
    grant_unref(work->give);
    registration_unref(work->give_registration);
    free(work->user);
    free(work->issuer);
    free(work->client_id);
    free(work->method);
    grant_unref(work->grant);
    registration_unref(work->registration);
    grant_unref_all(work->grants, work->count);
    grant_unref_all(work->damaged, work->damaged_count);
    loop_reap(work->store->loop, work, free);
}

// Moves the results to the request, ends the work, and calls on_done.
static void deliver(struct grant_work *work)
{
    struct grant_request *request = work->request;
    if (work->finish)
        work->finish(work);
    if (!request) {
        work_free(work);
        return;
    }
    request->work = NULL;
    request->answer = work->answer;
    request->err = work->err;
    request->grant = work->grant;
    request->registration = work->registration;
    request->grants = work->grants;
    request->count = work->count;
    request->damaged = work->damaged;
    request->damaged_count = work->damaged_count;
    request->attempt = work->attempt;
    request->notes = work->notes;
    request->issuer = work->issuer;
    work->issuer = NULL;
    work->grant = NULL;
    work->registration = NULL;
    work->grants = work->damaged = NULL;
    work->attempt = NULL;
    work_free(work);
    if (request->on_done)
        request->on_done(request);
}

static void run(struct store_job *job, struct record_store *records)
{
    struct grant_work *work = job->arg;
    work->run(work, records);
}

static void on_ran(struct store_job *job) { deliver(job->arg); }

void grant_work_refuse(struct loop_task *task)
{
    struct grant_store *store = task->arg;
    while (!list_empty(&store->refused))
        deliver(list_entry(store->refused.next, struct grant_work, node));
}

struct grant_work *grant_work_new(struct grant_store *store, struct grant_request *request,
                                  void (*run_it)(struct grant_work *work, struct record_store *records))
{
    struct grant_work *work = mem_new(struct grant_work);
    work->store = store;
    work->run = run_it;
    work->request = request;
    if (request) {
        grant_request_release(request);
        request->answer = GRANT_STORE_FAILED;
        request->err = (struct err){0};
        request->work = work;
    }
    return work;
}

void grant_work_start(struct grant_work *work)
{
    struct grant_store *store = work->store;
    work->started_ms = loop_now(store->loop);
    work->job = (struct store_job){.run = run, .done = on_ran, .arg = work};
    if (store_start(store->store, &work->job)) {
        list_append(&store->works, &work->node);
        return;
    }
    (void)err_set(&work->err, ERR_TOO_MANY, "too many requests are waiting for the grant store; try again later");
    list_append(&store->refused, &work->node);
    loop_task_put(store->loop, &store->refuse);
}

enum grant_answer grant_work_answer(enum record_answer answer, enum grant_answer if_no)
{
    return answer == RECORD_YES ? GRANT_STORE_DONE : answer == RECORD_NO ? if_no : GRANT_STORE_FAILED;
}
