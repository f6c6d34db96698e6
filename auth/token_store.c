// Owns the token store as the loop sees it: requests on their way to the worker and back, and looks at the store.
//
//     token_store_find ──► work (copies of all it needs) ──► worker: records, vault ──► cache, request ──► on_done
//
// A work belongs to the store, not to the request: a request may be cancelled and freed while its work is on the worker.
#include "auth/token_store.h"
#include "base/log.h"
#include "base/mem.h"
#include "token_work.h"
#include <stdlib.h>
#include <time.h>

enum { CLOSE_MS = 5000, SWEEP_MS = 3600000, SOON_MS = 20 };

// ---- works ----------------------------------------------------------------------------------

static void release_grants(struct grant **grants, size_t count)
{
    for (size_t i = 0; grants && i < count; i++)
        grant_unref(grants[i]);
    free(grants);
}

static void work_free(struct token_work *work)
{
    list_remove(&work->node);
    buf_release(&work->key);
    vault_wipe(&work->plain);
    attempt_free(work->attempt);
    grant_unref(work->give);
    registration_unref(work->give_registration);
    free(work->user);
    free(work->issuer);
    free(work->client_id);
    free(work->method);
    grant_unref(work->grant);
    registration_unref(work->registration);
    release_grants(work->grants, work->count);
    release_grants(work->damaged, work->damaged_count);
    loop_reap(work->store->loop, work, free);
}

void token_request_cancel(struct token_request *request)
{
    if (request->work)
        request->work->request = NULL;
    request->work = NULL;
}

static void let_go(struct token_request *request)
{
    grant_unref(request->grant);
    registration_unref(request->registration);
    release_grants(request->grants, request->count);
    release_grants(request->damaged, request->damaged_count);
    attempt_free(request->attempt);
    free(request->issuer);
    request->issuer = NULL;
    request->attempt = NULL;
    request->grant = NULL;
    request->registration = NULL;
    request->grants = request->damaged = NULL;
    request->count = request->damaged_count = 0;
}

void token_request_release(struct token_request *request)
{
    token_request_cancel(request);
    let_go(request);
}

// Hands over what came out, and ends the work.
static void deliver(struct token_work *work)
{
    struct token_request *request = work->request;
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
    struct token_work *work = job->arg;
    work->run(work, records);
}

static void on_ran(struct store_job *job) { deliver(job->arg); }

static void on_refuse(struct loop_task *task)
{
    struct token_store *store = task->arg;
    while (!list_empty(&store->refused))
        deliver(list_entry(store->refused.next, struct token_work, node));
}

struct token_work *token_work_new(struct token_store *store, struct token_request *request,
                                  void (*run_it)(struct token_work *work, struct record_store *records))
{
    struct token_work *work = mem_new(struct token_work);
    work->store = store;
    work->run = run_it;
    work->request = request;
    if (request) {
        token_request_release(request);
        request->answer = TOKEN_FAILED;
        request->err = (struct err){0};
        request->work = work;
    }
    return work;
}

void token_work_start(struct token_work *work)
{
    struct token_store *store = work->store;
    work->started_ms = loop_now(store->loop);
    work->job = (struct store_job){.run = run, .done = on_ran, .arg = work};
    if (store_start(store->store, &work->job)) {
        list_append(&store->works, &work->node);
        return;
    }
    (void)err_set(&work->err, ERR_TOO_MANY, "too much is waiting for the token store");
    list_append(&store->refused, &work->node);
    loop_task_put(store->loop, &store->refuse);
}

enum token_answer token_work_answer(enum record_answer answer, enum token_answer if_no)
{
    return answer == RECORD_YES ? TOKEN_DONE : answer == RECORD_NO ? if_no : TOKEN_FAILED;
}

static void put_key(struct token_work *work, const struct grant_key *key)
{
    struct grant_key whole = *key;
    if (!whole.resource)
        whole.resource = "";
    grant_key_encode(&whole, &work->key);
}

// ---- grants ---------------------------------------------------------------------------------

static void run_find(struct token_work *work, struct record_store *records)
{
    if (!record_newest(records, &work->newest, &work->err))
        return;
    work->answer = token_work_answer(
        token_record_grant(work->store->vault, records, buf_span(&work->key), &work->grant, &work->err), TOKEN_ABSENT);
}

static void finish_find(struct token_work *work)
{
    struct token_store *store = work->store;
    struct span key = buf_span(&work->key);
    const struct grant *unsaved = token_lease_unsaved(store, key);
    if (work->answer == TOKEN_DONE && unsaved && unsaved->generation == work->grant->generation) {
        grant_unref(work->grant);
        work->grant = grant_ref(unsaved);
    } else if (work->answer == TOKEN_DONE) {
        token_cache_put(store, key, work->grant, work->newest, work->started_ms);
    } else {
        token_cache_drop(store, key);
    }
}

void token_store_find(struct token_store *store, const struct grant_key *key, struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_find);
    put_key(work, key);
    work->finish = finish_find;
    token_work_start(work);
}

static void run_save(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_record_put_grant(work->store->vault, records, work->give, work->generation, &work->grant, &work->err),
        TOKEN_CONFLICT);
}

static void finish_save(struct token_work *work)
{
    if (work->answer == TOKEN_DONE)
        token_cache_put(work->store, buf_span(&work->key), work->grant, work->grant->generation, work->started_ms);
    else
        token_cache_drop(work->store, buf_span(&work->key));
}

void token_store_save(struct token_store *store, const struct grant *grant, int64_t generation,
                      struct token_request *request)
{
    struct grant *give = grant_ref(grant);  // before the request lets go of what it has: it may be the same
    struct token_work *work = token_work_new(store, request, run_save);
    struct grant_key key = grant_key(grant);
    put_key(work, &key);
    work->finish = finish_save;
    work->give = give;
    work->generation = generation;
    token_work_start(work);
}

static void run_remove(struct token_work *work, struct record_store *records)
{
    struct record_name name = {VAULT_GRANTS, buf_span(&work->key)};
    struct record record;
    enum record_answer answer = token_record_remove(records, name, work->generation, &work->err);
    work->answer = token_work_answer(answer, TOKEN_ABSENT);
    if (answer == RECORD_NO && record_get(records, name, &record, &work->err) == RECORD_YES)
        work->answer = TOKEN_CONFLICT;
}

static void finish_remove(struct token_work *work) { token_cache_drop(work->store, buf_span(&work->key)); }

void token_store_remove(struct token_store *store, const struct grant_key *key, int64_t generation,
                        struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_remove);
    put_key(work, key);
    work->finish = finish_remove;
    work->generation = generation;
    token_cache_drop(store, buf_span(&work->key));  // at once
    token_work_start(work);
}

// ---- many grants ----------------------------------------------------------------------------

struct visit {
    struct token_work *work;
    struct record_store *records;
};

static bool wanted(const struct token_work *work, const struct grant *grant)
{
    return (!work->user || strcmp(work->user, grant->user) == 0) &&
           (!work->issuer || strcmp(work->issuer, grant->issuer) == 0);
}

// What its key tells, without opening it.
static struct grant *closed_grant(struct span key, struct err *err)
{
    static const char nothing[] = {1};  // the bytes of a grant that says nothing
    return grant_decode(key, span_make(nothing, 1), 0, err);
}

static void add(struct grant ***list, size_t *count, struct grant *grant)
{
    if (!(*count & (*count - 1)))  // full at each power of two
        *list = mem_resize(*list, (*count ? *count * 2 : 1) * sizeof **list);
    (*list)[(*count)++] = grant;
}

// What cannot be opened is told, and hides nothing else.
static bool visit_list(void *arg, const struct record *record)
{
    struct visit *visit = arg;
    struct token_work *work = visit->work;
    struct buf plain = {0};
    struct record_name name = {VAULT_GRANTS, record->key};
    struct grant *grant = NULL;
    struct err ignored;
    if (vault_unseal(work->store->vault, name, record->value, &plain, &work->err))
        grant = grant_decode(record->key, buf_span(&plain), record->generation, &work->err);
    vault_wipe(&plain);
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

static void run_list(struct token_work *work, struct record_store *records)
{
    struct visit visit = {.work = work, .records = records};
    struct record_name prefix = {VAULT_GRANTS, buf_span(&work->key)};
    if (record_scan(records, prefix, visit_list, &visit, &work->err))
        work->answer = TOKEN_DONE;
}

// Without opening it: what cannot be opened can be purged.
static bool visit_purge(void *arg, const struct record *record)
{
    struct visit *visit = arg;
    struct token_work *work = visit->work;
    struct buf key = {0};
    buf_put_span(&key, record->key);
    struct grant *grant = closed_grant(record->key, &work->err);
    enum record_answer gone = RECORD_NO;
    if (grant && wanted(work, grant))
        gone = token_record_remove(visit->records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, TOKEN_ANY,
                                   &work->err);
    work->count += gone == RECORD_YES;
    if (gone == RECORD_FAILED)
        work->answer = TOKEN_FAILED;
    grant_unref(grant);
    buf_release(&key);
    return gone != RECORD_FAILED;
}

static void run_purge(struct token_work *work, struct record_store *records)
{
    struct visit visit = {.work = work, .records = records};
    struct record_name prefix = {VAULT_GRANTS, buf_span(&work->key)};
    work->answer = TOKEN_DONE;
    if (!record_scan(records, prefix, visit_purge, &visit, &work->err))
        work->answer = TOKEN_FAILED;
}

static void finish_purge(struct token_work *work) { token_cache_clear(work->store); }

static struct token_work *with_filter(struct token_work *work, const struct grant_filter *filter)
{
    struct grant_key beginning = {.tenant = filter->tenant, .user = filter->tenant ? filter->user : NULL};
    grant_key_encode(&beginning, &work->key);
    work->user = mem_string(filter->user);  // of all tenants no key begins with it
    work->issuer = mem_string(filter->issuer);
    return work;
}

void token_store_list(struct token_store *store, const struct grant_filter *filter, struct token_request *request)
{
    token_work_start(with_filter(token_work_new(store, request, run_list), filter));
}

void token_store_purge(struct token_store *store, const struct grant_filter *filter, struct token_request *request)
{
    struct token_work *work = with_filter(token_work_new(store, request, run_purge), filter);
    work->finish = finish_purge;
    token_cache_clear(store);  // at once
    token_work_start(work);
}

const unsigned char *token_store_key(const struct token_store *store) { return store->key; }

// ---- the cache ------------------------------------------------------------------------------

const struct grant *token_store_cached(struct token_store *store, const struct grant_key *key)
{
    struct grant_key whole = *key;
    struct buf encoded = {0};
    if (!whole.resource)
        whole.resource = "";
    grant_key_encode(&whole, &encoded);
    const struct grant *grant = token_lease_unsaved(store, buf_span(&encoded));
    if (!grant)
        grant = token_cache_find(store, buf_span(&encoded));
    buf_release(&encoded);
    return grant;
}

static void run_poll(struct token_work *work, struct record_store *records)
{
    if (record_newest(records, &work->newest, &work->err))
        work->answer = TOKEN_DONE;
}

static void finish_poll(struct token_work *work)
{
    struct token_store *store = work->store;
    store->polling = NULL;
    if (work->answer == TOKEN_DONE)
        token_cache_checked(store, work->newest, work->started_ms);
    if ((store->cache.count || store->poll_soon) && !store->closing)
        loop_timer_set(store->loop, &store->poll, store->poll_soon ? SOON_MS : TOKEN_STORE_POLL_MS);
}

static void on_poll(struct loop_timer *timer)
{
    struct token_store *store = timer->arg;
    if (!store->cache.count && !store->poll_soon)
        return;
    store->poll_soon = false;
    store->polling = token_work_new(store, NULL, run_poll);
    store->polling->finish = finish_poll;
    token_work_start(store->polling);
}

static void on_news(void *arg, enum store_news news)
{
    struct token_store *store = arg;
    if (news == STORE_CLOSED) {
        token_cache_clear(store);
        store->version++;
    } else if (!store->poll_soon && !store->closing) {
        store->poll_soon = true;
        if (!store->polling)
            loop_timer_set(store->loop, &store->poll, SOON_MS);
    }
}

uint64_t token_store_version(const struct token_store *store) { return store->version; }

// ---- what is over ---------------------------------------------------------------------------

static void run_sweep(struct token_work *work, struct record_store *records)
{
    if (!token_record_sweep(work->store->vault, records, (int64_t)time(NULL), &work->err))
        log_warn("dead grants were not removed; trying again in an hour", LOG_STR("problem", work->err.detail));
}

// F12: at the start, and every hour of a gateway.
static void on_sweep(struct loop_timer *timer)
{
    struct token_store *store = timer->arg;
    token_work_start(token_work_new(store, NULL, run_sweep));
    loop_timer_set(store->loop, timer, SWEEP_MS);
}

// ---- opening and closing --------------------------------------------------------------------

struct token_store *token_store_open(struct loop *loop, const struct record_config *records,
                                     const struct vault_config *vault, struct err *err)
{
    struct token_store *store = mem_new(struct token_store);
    store->loop = loop;
    list_init(&store->recent);
    list_init(&store->works);
    list_init(&store->refused);
    list_init(&store->leases);
    store->poll = (struct loop_timer){.on_due = on_poll, .arg = store, .name = "token store"};
    store->sweep = (struct loop_timer){.on_due = on_sweep, .arg = store, .name = "token store"};
    store->refuse = (struct loop_task){.run = on_refuse, .arg = store, .name = "token store"};
    struct record_store *opened = record_open(records, err);
    if (opened && (store->vault = vault_open(vault, opened, err)) &&
        vault_shared_key(store->vault, opened, store->key, err)) {
        if ((store->store = store_new(loop, opened, err))) {
            store_watch(store->store, on_news, store);
            on_sweep(&store->sweep);
            return store;
        }
        opened = NULL;  // it has closed them
    }
    record_close(opened);
    vault_free(store->vault);
    free(store);
    return NULL;
}

bool token_store_wait(struct token_store *store, int64_t timeout_ms)
{
    on_refuse(&store->refuse);
    bool idle = store_wait(store->store, timeout_ms);
    on_refuse(&store->refuse);
    return idle;
}

size_t token_store_close(struct token_store *store)
{
    if (!store)
        return 0;
    store->closing = true;
    loop_timer_stop(store->loop, &store->poll);
    loop_timer_stop(store->loop, &store->sweep);
    token_lease_stop_all(store);
    (void)token_store_wait(store, CLOSE_MS);
    store_free(store->store);
    loop_task_drop(&store->refuse);
    on_refuse(&store->refuse);
    size_t lost = store->unsaved;
    token_lease_free_all(store);
    token_cache_clear(store);
    map_release(&store->cache);
    vault_free(store->vault);
    secret_wipe(store->key, sizeof store->key);
    free(store);
    return lost;
}
