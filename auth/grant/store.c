// Owns the grant store as the loop sees it: opening and closing, grants, and polling for the writes of other processes.
#include "auth/grant/store.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "encoding.h"
#include "sealing.h"
#include "work.h"
#include <stdlib.h>

enum { CLOSE_MS = 5000, SWEEP_MS = 3600000, SOON_MS = 20 };

static void put_key(struct grant_work *work, const struct grant_key *key)
{
    struct grant_key whole = *key;
    if (!whole.resource)
        whole.resource = "";
    grant_key_encode(&whole, &work->key);
}

// ---- grants ---------------------------------------------------------------------------------

static void run_find(struct grant_work *work, struct record_store *records)
{
    if (!record_newest(records, &work->newest, &work->err))
        return;
    work->answer = grant_work_answer(
        grant_record_grant(work->store->vault, records, buf_span(&work->key), &work->grant, &work->err),
        GRANT_STORE_ABSENT);
}

// Replaces a stored grant by the refreshed one that could not be stored yet.
static bool use_unsaved(const struct grant_store *store, struct span key, struct grant **grant)
{
    const struct grant *unsaved = grant_lease_unsaved(store, key);
    if (!unsaved || unsaved->generation != (*grant)->generation)
        return false;
    grant_unref(*grant);
    *grant = grant_ref(unsaved);
    return true;
}

static void finish_find(struct grant_work *work)
{
    struct grant_store *store = work->store;
    struct span key = buf_span(&work->key);
    if (work->answer == GRANT_STORE_DONE && use_unsaved(store, key, &work->grant))
        return;
    if (work->answer == GRANT_STORE_DONE) {
        grant_cache_put(store, key, work->grant, work->newest, work->started_ms);
    } else {
        grant_cache_drop(store, key);
    }
}

void grant_store_find(struct grant_store *store, const struct grant_key *key, struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_find);
    put_key(work, key);
    work->finish = finish_find;
    grant_work_start(work);
}

static void run_save(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(
        grant_record_put_grant(work->store->vault, records, work->give, work->generation, &work->grant, &work->err),
        GRANT_STORE_CONFLICT);
}

static void finish_save(struct grant_work *work)
{
    if (work->answer == GRANT_STORE_DONE)
        grant_cache_put(work->store, buf_span(&work->key), work->grant, work->grant->generation, work->started_ms);
    else
        grant_cache_drop(work->store, buf_span(&work->key));
}

void grant_store_save(struct grant_store *store, const struct grant *grant, int64_t generation,
                      struct grant_request *request)
{
    struct grant *give = grant_ref(grant);  // first: grant_work_new() frees the request's results, which may include it
    struct grant_work *work = grant_work_new(store, request, run_save);
    struct grant_key key = grant_key(grant);
    put_key(work, &key);
    work->finish = finish_save;
    work->give = give;
    work->generation = generation;
    grant_work_start(work);
}

static void run_remove(struct grant_work *work, struct record_store *records)
{
    struct record_name name = {VAULT_GRANTS, buf_span(&work->key)};
    struct record record;
    enum record_answer answer = grant_record_remove(records, name, work->generation, &work->err);
    work->answer = grant_work_answer(answer, GRANT_STORE_ABSENT);
    if (answer == RECORD_NO && record_get(records, name, &record, &work->err) == RECORD_YES)
        work->answer = GRANT_STORE_CONFLICT;
}

static void finish_remove(struct grant_work *work) { grant_cache_drop(work->store, buf_span(&work->key)); }

void grant_store_remove(struct grant_store *store, const struct grant_key *key, int64_t generation,
                        struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_remove);
    put_key(work, key);
    work->finish = finish_remove;
    work->generation = generation;
    grant_cache_drop(store, buf_span(&work->key));  // at once
    grant_work_start(work);
}

// ---- many grants ----------------------------------------------------------------------------

struct record_walk {
    struct grant_work *work;
    struct record_store *records;
};

static bool wanted(const struct grant_work *work, const struct grant *grant)
{
    return (!work->user || strcmp(work->user, grant->user) == 0) &&
           (!work->issuer || strcmp(work->issuer, grant->issuer) == 0);
}

// A grant with the texts of its key only, for a record that is not opened.
static struct grant *closed_grant(struct span key, struct err *err)
{
    static const char nothing[] = {1};  // the encoding of a grant without members
    return grant_decode(key, span_make(nothing, 1), 0, err);
}

static void add(struct grant ***list, size_t *count, struct grant *grant)
{
    if (!(*count & (*count - 1)))  // full at each power of two
        *list = mem_resize(*list, (*count ? *count * 2 : 1) * sizeof **list);
    (*list)[(*count)++] = grant;
}

// A grant that cannot be opened is listed as damaged, and the scan goes on.
static bool visit_list(void *arg, const struct record *record)
{
    struct record_walk *walk = arg;
    struct grant_work *work = walk->work;
    struct buf plain = {0};
    struct record_name name = {VAULT_GRANTS, record->key};
    struct grant *grant = NULL;
    struct err ignored;
    if (vault_unseal(work->store->vault, name, record->value, &plain, &work->err))
        grant = grant_decode(record->key, buf_span(&plain), record->generation, &work->err);
    buf_wipe(&plain);
    bool open = grant;
    if (!grant)
        grant = closed_grant(record->key, &ignored);
    if (!grant || !wanted(work, grant))
        grant_unref(grant);
    else if (open)
        add(&work->grants, &work->count, grant);
    else
        add(&work->damaged, &work->damaged_count, grant);
    return true;
}

static void run_list(struct grant_work *work, struct record_store *records)
{
    struct record_walk walk = {.work = work, .records = records};
    struct record_name prefix = {VAULT_GRANTS, buf_span(&work->key)};
    if (record_scan(records, prefix, visit_list, &walk, &work->err))
        work->answer = GRANT_STORE_DONE;
}

// Deletes a grant without opening it, so that damaged grants can be purged too.
static bool visit_purge(void *arg, const struct record *record)
{
    struct record_walk *walk = arg;
    struct grant_work *work = walk->work;
    struct buf key = {0};
    buf_put_span(&key, record->key);
    struct grant *grant = closed_grant(record->key, &work->err);
    enum record_answer gone = RECORD_NO;
    if (grant && wanted(work, grant))
        gone = grant_record_remove(walk->records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, GRANT_STORE_ANY,
                                   &work->err);
    work->count += gone == RECORD_YES;
    if (gone == RECORD_FAILED)
        work->answer = GRANT_STORE_FAILED;
    grant_unref(grant);
    buf_release(&key);
    return gone != RECORD_FAILED;
}

static void run_purge(struct grant_work *work, struct record_store *records)
{
    struct record_walk walk = {.work = work, .records = records};
    struct record_name prefix = {VAULT_GRANTS, buf_span(&work->key)};
    work->answer = GRANT_STORE_DONE;
    if (!record_scan(records, prefix, visit_purge, &walk, &work->err))
        work->answer = GRANT_STORE_FAILED;
}

static void finish_purge(struct grant_work *work) { grant_cache_clear(work->store); }

static struct grant_work *with_filter(struct grant_work *work, const struct grant_filter *filter)
{
    struct grant_key beginning = {.tenant = filter->tenant, .user = filter->tenant ? filter->user : NULL};
    grant_key_encode(&beginning, &work->key);
    work->user = mem_string(filter->user);  // needed without a tenant: then the key's prefix does not contain the user
    work->issuer = mem_string(filter->issuer);
    return work;
}

static void finish_list(struct grant_work *work)
{
    struct buf encoded = {0};
    for (size_t i = 0; i < work->count; i++) {
        struct grant_key key = grant_key(work->grants[i]);
        buf_clear(&encoded);
        grant_key_encode(&key, &encoded);
        (void)use_unsaved(work->store, buf_span(&encoded), &work->grants[i]);
    }
    buf_release(&encoded);
}

void grant_store_list(struct grant_store *store, const struct grant_filter *filter, struct grant_request *request)
{
    struct grant_work *work = with_filter(grant_work_new(store, request, run_list), filter);
    work->finish = finish_list;
    grant_work_start(work);
}

void grant_store_purge(struct grant_store *store, const struct grant_filter *filter, struct grant_request *request)
{
    struct grant_work *work = with_filter(grant_work_new(store, request, run_purge), filter);
    work->finish = finish_purge;
    grant_cache_clear(store);  // at once
    grant_work_start(work);
}

const unsigned char *grant_store_key(const struct grant_store *store) { return store->key; }

// ---- the cache ------------------------------------------------------------------------------

const struct grant *grant_store_cached(struct grant_store *store, const struct grant_key *key)
{
    struct grant_key whole = *key;
    struct buf encoded = {0};
    if (!whole.resource)
        whole.resource = "";
    grant_key_encode(&whole, &encoded);
    const struct grant *grant = grant_lease_unsaved(store, buf_span(&encoded));
    if (!grant)
        grant = grant_cache_find(store, buf_span(&encoded));
    buf_release(&encoded);
    return grant;
}

static void run_poll(struct grant_work *work, struct record_store *records)
{
    if (record_newest(records, &work->newest, &work->err))
        work->answer = GRANT_STORE_DONE;
}

static void finish_poll(struct grant_work *work)
{
    struct grant_store *store = work->store;
    store->polling = NULL;
    if (work->answer == GRANT_STORE_DONE)
        grant_cache_checked(store, work->newest, work->started_ms);
    if ((store->cache.count || store->poll_soon) && !store->closing)
        loop_timer_set(store->loop, &store->poll, store->poll_soon ? SOON_MS : GRANT_STORE_POLL_MS);
}

static void on_poll(struct loop_timer *timer)
{
    struct grant_store *store = timer->arg;
    if (!store->cache.count && !store->poll_soon)
        return;
    store->poll_soon = false;
    store->polling = grant_work_new(store, NULL, run_poll);
    store->polling->finish = finish_poll;
    grant_work_start(store->polling);
}

static void on_news(void *arg, enum store_news news)
{
    struct grant_store *store = arg;
    if (news == STORE_CLOSED) {
        grant_cache_clear(store);
        store->version++;
    } else if (!store->poll_soon && !store->closing) {
        store->poll_soon = true;
        if (!store->polling)
            loop_timer_set(store->loop, &store->poll, SOON_MS);
    }
}

uint64_t grant_store_version(const struct grant_store *store) { return store->version; }

// ---- dead grants ----------------------------------------------------------------------------

static void run_sweep(struct grant_work *work, struct record_store *records)
{
    if (!grant_record_sweep(work->store->vault, records, clock_wall_s(), &work->err))
        log_warn("cannot remove dead grants; retrying in an hour", LOG_STR("problem", work->err.detail));
}

// F12: at startup, and every hour while a gateway runs.
static void on_sweep(struct loop_timer *timer)
{
    struct grant_store *store = timer->arg;
    grant_work_start(grant_work_new(store, NULL, run_sweep));
    loop_timer_set(store->loop, timer, SWEEP_MS);
}

// ---- opening and closing --------------------------------------------------------------------

struct grant_store *grant_store_open(struct loop *loop, const struct record_config *records,
                                     const struct vault_config *vault, struct err *err)
{
    struct grant_store *store = mem_new(struct grant_store);
    store->loop = loop;
    list_init(&store->recent);
    list_init(&store->works);
    list_init(&store->refused);
    list_init(&store->leases);
    store->poll = (struct loop_timer){.on_due = on_poll, .arg = store, .name = "grant store"};
    store->sweep = (struct loop_timer){.on_due = on_sweep, .arg = store, .name = "grant store"};
    store->refuse = (struct loop_task){.run = grant_work_refuse, .arg = store, .name = "grant store"};
    struct record_store *opened = record_open(records, err);
    if (opened && (store->vault = vault_open(vault, opened, err)) &&
        vault_shared_key(store->vault, opened, store->key, err)) {
        if ((store->store = store_new(loop, opened, err))) {
            store_watch(store->store, on_news, store);
            on_sweep(&store->sweep);
            return store;
        }
        opened = NULL;  // store_new() has closed the records
    }
    record_close(opened);
    vault_free(store->vault);
    free(store);
    return NULL;
}

bool grant_store_wait(struct grant_store *store, int64_t timeout_ms)
{
    grant_work_refuse(&store->refuse);
    bool idle = store_wait(store->store, timeout_ms);
    grant_work_refuse(&store->refuse);
    return idle;
}

size_t grant_store_close(struct grant_store *store)
{
    if (!store)
        return 0;
    store->closing = true;
    loop_timer_stop(store->loop, &store->poll);
    loop_timer_stop(store->loop, &store->sweep);
    grant_lease_stop_all(store);
    (void)grant_store_wait(store, CLOSE_MS);
    store_free(store->store);
    loop_task_drop(&store->refuse);
    grant_work_refuse(&store->refuse);
    size_t lost = store->unsaved;
    grant_lease_free_all(store);
    grant_cache_clear(store);
    map_release(&store->cache);
    vault_free(store->vault);
    secret_wipe(store->key, sizeof store->key);
    free(store);
    return lost;
}

size_t grant_store_unsaved(const struct grant_store *store, struct err *why)
{
    if (why && store->unsaved)
        *why = store->unsaved_why;
    return store->unsaved;
}
