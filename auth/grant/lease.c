// Owns the leases of grants: of all requests, in all processes, that find an expired token, only one refreshes it.
//
//                 lease is taken: retry soon
//                 ┌──────────┐
//     start ──► TRYING ──► HELD ──► SAVING ──► over
//                 │          │        │ write failed
//                 │          │        └──► UNSAVED ──► every second: renew, write ──► over
//                 │          └──► RELEASING ──► over
//                 └──► over: changed, gone, late, failed
//
// A held lease is renewed until it is released. So it can be much shorter than the slowest refresh, and a holder that
// was killed delays the others for seconds only.
//
// The lease is a row in the store (store/record.h) under the grant's key. It is taken before the grant is read, so that
// the grant of another holder is seen. The lease only avoids superfluous refreshes; the generation alone decides which
// grant is stored. Works of this process with the same key wait for each other without accessing the store.
//
// set_phase() is the only function that changes the phase of a work, and checks the transition. When the store is
// freed, works end in any phase.
#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "work.h"
#include <stdlib.h>

enum { WAIT_MS = 35000, AGAIN_MS = 50, NEIGHBOUR_MS = 1000, UNSAVED_MS = 1000, RENEW_MS = GRANT_STORE_HOLD_MS / 4 };

enum lease_phase { OVER, TRYING, HELD, SAVING, UNSAVED, RELEASING };

struct grant_lease_work {
    struct list node;
    struct grant_store *store;
    struct grant_lease *lease;  // NULL: cancelled, or the result was already reported
    enum lease_phase phase;
    struct store_job job;
    bool busy;      // the job is with the worker
    bool renewing;  // the job renews the lease
    bool behind;    // waits for another work of this process with the same key
    struct loop_timer timer;
    int64_t give_up_ms, started_ms;
    struct buf key;
    int64_t generation;
    struct record_lease held;
    bool holds;
    struct grant *give;  // to be saved
    // results
    enum grant_lease_state state;
    bool taken;  // another process holds the lease
    enum grant_answer answer;
    struct err err;
    struct grant *grant;
};

#define TO(phase) (1U << (phase))

static const unsigned allowed[] = {
    [OVER] = TO(TRYING),
    [TRYING] = TO(HELD) | TO(RELEASING) | TO(OVER),
    [HELD] = TO(SAVING) | TO(RELEASING) | TO(OVER),
    [SAVING] = TO(UNSAVED) | TO(OVER),
    [UNSAVED] = TO(UNSAVED) | TO(OVER),
    [RELEASING] = TO(OVER),
};

static void set_phase(struct grant_lease_work *work, enum lease_phase phase)
{
    CHECK(allowed[work->phase] & TO(phase));
    work->phase = phase;
}

static struct span key_of(const struct grant_lease_work *work) { return buf_span(&work->key); }

// ---- on the worker --------------------------------------------------------------------------

static void release_lease(struct grant_lease_work *work, struct record_store *records)
{
    struct err err = {0};
    if (work->holds && record_lease_release(records, key_of(work), &work->held, &err) == RECORD_FAILED)
        log_warn("cannot release a lease; it will expire", LOG_STR("problem", err.detail));
    work->holds = false;
}

// Reads the grant. Returns true if it still has the generation that needs a refresh.
static bool unchanged(struct grant_lease_work *work, struct record_store *records)
{
    grant_unref(work->grant);
    work->grant = NULL;
    enum record_answer got = grant_record_grant(work->store->vault, records, key_of(work), &work->grant, &work->err);
    work->state = got == RECORD_YES ? LEASE_CHANGED : got == RECORD_NO ? LEASE_GONE : LEASE_FAILED;
    return got == RECORD_YES && work->grant->generation == work->generation;
}

static void run_try(struct store_job *job, struct record_store *records)
{
    struct grant_lease_work *work = job->arg;
    work->taken = false;
    if (!unchanged(work, records))
        return;
    work->held = (struct record_lease){.length_ms = GRANT_STORE_HOLD_MS};
    enum record_answer got = record_lease_take(records, key_of(work), &work->held, NULL, &work->err);
    work->holds = got == RECORD_YES;
    work->taken = got == RECORD_NO;
    work->state = LEASE_FAILED;
    if (!work->holds)
        return;
    if (unchanged(work, records))
        work->state = LEASE_HELD;
    else
        release_lease(work, records);
}

static void run_save(struct store_job *job, struct record_store *records)
{
    struct grant_lease_work *work = job->arg;
    struct err ignored;
    grant_unref(work->grant);
    work->err = (struct err){0};
    enum record_answer got =
        grant_record_put_grant(work->store->vault, records, work->give, work->generation, &work->grant, &work->err);
    work->answer = got == RECORD_YES ? GRANT_STORE_DONE : got == RECORD_NO ? GRANT_STORE_CONFLICT : GRANT_STORE_FAILED;
    if (got != RECORD_FAILED)
        release_lease(work, records);
    else if (record_lease_renew(records, key_of(work), &work->held, &ignored) == RECORD_NO)
        work->holds = false;
}

static void run_release(struct store_job *job, struct record_store *records) { release_lease(job->arg, records); }

// A lost lease is not taken again: the generation decides which grant is stored.
static void run_renew(struct store_job *job, struct record_store *records)
{
    struct grant_lease_work *work = job->arg;
    struct err ignored;
    if (record_lease_renew(records, key_of(work), &work->held, &ignored) == RECORD_NO)
        work->holds = false;
}

// ---- on the loop ----------------------------------------------------------------------------

static void start(struct grant_lease_work *work, void (*run)(struct store_job *job, struct record_store *records));

static bool same_key(const struct grant_lease_work *a, const struct grant_lease_work *b)
{
    return span_equal(key_of(a), key_of(b));
}

// Ends the work, and wakes the works of this process that wait for it.
static void end(struct grant_lease_work *work)
{
    struct grant_store *store = work->store;
    if (work->phase == UNSAVED)
        store->unsaved--;
    set_phase(work, OVER);
    if (work->lease)
        work->lease->work = NULL;
    loop_timer_stop(store->loop, &work->timer);
    list_remove(&work->node);
    list_each(node, &store->leases) {
        struct grant_lease_work *other = list_entry(node, struct grant_lease_work, node);
        if (other->behind && same_key(work, other))
            loop_timer_set(store->loop, &other->timer, 0);
    }
    buf_release(&work->key);
    grant_unref(work->give);
    grant_unref(work->grant);
    loop_reap(store->loop, work, free);
}

// Ends the work, and reports a state other than LEASE_HELD.
static void finish_without_lease(struct grant_lease_work *work, enum grant_lease_state state)
{
    struct grant_lease *lease = work->lease;
    lease->state = state;
    lease->err = work->err;
    lease->grant = work->grant;
    work->grant = NULL;
    end(work);
    lease->on_ready(lease);
}

static void on_tried(struct grant_lease_work *work)
{
    struct grant_store *store = work->store;
    if (!work->lease && work->holds) {
        set_phase(work, RELEASING);
        start(work, run_release);
    } else if (!work->lease) {
        end(work);
    } else if (work->taken && loop_now(store->loop) < work->give_up_ms && !store->closing) {
        unsigned char jitter;  // so that waiting processes do not all retry at once
        secret_random(&jitter, sizeof jitter);
        loop_timer_set(store->loop, &work->timer, AGAIN_MS + jitter % AGAIN_MS);
    } else if (work->state == LEASE_HELD) {
        set_phase(work, HELD);
        loop_timer_set(store->loop, &work->timer, RENEW_MS);
        work->lease->state = LEASE_HELD;
        work->lease->grant = work->grant;
        work->grant = NULL;
        work->lease->on_ready(work->lease);
    } else {
        finish_without_lease(work, work->taken ? LEASE_LATE : work->state);
    }
}

static void cache_outcome(struct grant_lease_work *work)
{
    if (work->answer == GRANT_STORE_DONE)
        grant_cache_put(work->store, key_of(work), work->grant, work->grant->generation, work->started_ms);
    else
        grant_cache_drop(work->store, key_of(work));
}

static void on_saved(struct grant_lease_work *work)
{
    struct grant_lease *lease = work->lease;
    bool first = work->phase == SAVING;
    if (lease) {
        work->lease = NULL;
        lease->work = NULL;
        lease->answer = work->answer;
        lease->err = work->err;
        grant_unref(lease->grant);
        lease->grant = grant_ref(work->answer == GRANT_STORE_FAILED ? work->give : work->grant);
    }
    if (work->answer == GRANT_STORE_FAILED) {
        if (first)
            log_error("cannot store a refreshed token; keeping it in memory and retrying",
                      LOG_STR("problem", work->err.detail));
        work->store->unsaved += first;
        work->store->unsaved_why = work->err;
        set_phase(work, UNSAVED);
        if (!work->store->closing)
            loop_timer_set(work->store->loop, &work->timer, UNSAVED_MS);
    } else {
        if (!first)
            log_info("stored a refreshed token after a retry");
        cache_outcome(work);
        end(work);
    }
    if (lease && lease->on_saved)
        lease->on_saved(lease);
}

// A save or release that was requested during the renewal starts now.
static void on_renewed(struct grant_lease_work *work)
{
    work->renewing = false;
    if (work->phase == HELD)
        loop_timer_set(work->store->loop, &work->timer, RENEW_MS);
    else
        start(work, work->phase == SAVING ? run_save : run_release);
}

static void on_ran(struct store_job *job)
{
    struct grant_lease_work *work = job->arg;
    work->busy = false;
    if (work->renewing)
        on_renewed(work);
    else if (work->phase == TRYING)
        on_tried(work);
    else if (work->phase == SAVING || work->phase == UNSAVED)
        on_saved(work);
    else
        end(work);
}

static void start(struct grant_lease_work *work, void (*run)(struct store_job *job, struct record_store *records))
{
    work->job = (struct store_job){.run = run, .done = on_ran, .arg = work};
    work->started_ms = loop_now(work->store->loop);
    work->busy = store_start(work->store->store, &work->job);
    if (!work->busy && !work->store->closing)
        loop_timer_set(work->store->loop, &work->timer, AGAIN_MS);  // the worker's queue is full
}

static bool has_neighbour(const struct grant_lease_work *work)
{
    list_each(node, &work->store->leases) {
        const struct grant_lease_work *other = list_entry(node, struct grant_lease_work, node);
        if (other == work)
            return false;  // only works before it in the list have precedence
        if (same_key(work, other))
            return true;
    }
    return false;
}

static void try_now(struct grant_lease_work *work)
{
    work->behind = loop_now(work->store->loop) < work->give_up_ms && has_neighbour(work);
    if (work->behind)
        loop_timer_set(work->store->loop, &work->timer, NEIGHBOUR_MS);
    else
        start(work, run_try);
}

static void on_timer(struct loop_timer *timer)
{
    struct grant_lease_work *work = timer->arg;
    switch (work->phase) {
    case TRYING: try_now(work); break;
    case HELD:
        start(work, run_renew);
        work->renewing = work->busy;
        break;
    case RELEASING: start(work, run_release); break;
    default: start(work, run_save);
    }
}

// ---- the interface --------------------------------------------------------------------------

void grant_lease_start(struct grant_store *store, struct grant_lease *lease, const struct grant_key *key,
                       int64_t generation)
{
    struct grant_lease_work *work = mem_new(struct grant_lease_work);
    struct grant_key whole = *key;
    if (!whole.resource)
        whole.resource = "";
    grant_lease_end(lease);
    lease->state = LEASE_FAILED;
    lease->answer = GRANT_STORE_FAILED;
    lease->err = (struct err){0};
    lease->work = work;
    work->store = store;
    work->lease = lease;
    set_phase(work, TRYING);
    work->generation = generation;
    work->give_up_ms = loop_now(store->loop) + (lease->wait_ms ? lease->wait_ms : WAIT_MS);
    work->timer = (struct loop_timer){.on_due = on_timer, .arg = work, .name = "token lease"};
    grant_key_encode(&whole, &work->key);
    list_append(&store->leases, &work->node);
    try_now(work);
}

void grant_lease_save(struct grant_lease *lease, const struct grant *grant)
{
    struct grant_lease_work *work = lease->work;
    struct grant_key key = grant_key(grant);
    struct grant_fields fields = {0};
    grant_fields_copy(&grant->is, &fields);
    work->give = grant_new(&key, &fields);  // a private copy, because its generation is set here
    work->give->generation = work->generation;
    set_phase(work, SAVING);
    loop_timer_stop(work->store->loop, &work->timer);
    if (!work->busy)
        start(work, run_save);
}

void grant_lease_end(struct grant_lease *lease)
{
    struct grant_lease_work *work = lease->work;
    grant_unref(lease->grant);
    lease->grant = NULL;
    lease->work = NULL;
    if (!work)
        return;
    work->lease = NULL;
    if (work->phase == HELD) {
        set_phase(work, RELEASING);
        loop_timer_stop(work->store->loop, &work->timer);
        if (!work->busy)
            start(work, run_release);
    } else if (work->phase == TRYING && !work->busy) {
        end(work);
    }
}

const struct grant *grant_lease_unsaved(const struct grant_store *store, struct span key)
{
    if (!store->unsaved)
        return NULL;
    list_each(node, &store->leases) {
        const struct grant_lease_work *work = list_entry(node, struct grant_lease_work, node);
        if (work->phase == UNSAVED && span_equal(key_of(work), key))
            return work->give;
    }
    return NULL;
}

void grant_lease_stop_all(struct grant_store *store)
{
    list_each(node, &store->leases) {
        struct grant_lease_work *work = list_entry(node, struct grant_lease_work, node);
        if (work->lease)
            work->lease->work = NULL;
        work->lease = NULL;
        loop_timer_stop(store->loop, &work->timer);
        if (work->phase == HELD)
            set_phase(work, RELEASING);
        if (!work->busy && work->phase != TRYING)
            start(work, work->phase == RELEASING ? run_release : run_save);
    }
}

void grant_lease_free_all(struct grant_store *store)
{
    if (store->unsaved)
        log_error("lost refreshed tokens that could not be stored", LOG_INT("count", store->unsaved));
    while (!list_empty(&store->leases))
        end(list_entry(store->leases.next, struct grant_lease_work, node));
}
