// Owns pending logins in the grant store, as the loop sees them.
#include "encoding.h"
#include "work.h"

static struct grant_work *attempt_work(struct grant_store *store, struct grant_request *request,
                                       void (*run_it)(struct grant_work *work, struct record_store *records),
                                       struct span secret, const struct attempt *attempt)
{
    struct buf plain = {0}, key = {0};
    int64_t generation = attempt ? attempt->generation : 0;
    attempt_record_key(secret, attempt, &key);
    if (attempt)
        attempt_encode(attempt, &plain);  // first: grant_work_new() frees the request's results, which may include it
    struct grant_work *work = grant_work_new(store, request, run_it);
    work->key = key;
    work->generation = generation;
    work->plain = plain;
    return work;
}

static void run_attempt_find(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(
        attempt_record_get(work->store->vault, records, buf_span(&work->key), &work->attempt, &work->err),
        GRANT_STORE_ABSENT);
}

void grant_store_attempt_find(struct grant_store *store, struct span secret, struct grant_request *request)
{
    grant_work_start(attempt_work(store, request, run_attempt_find, secret, NULL));
}

static void run_attempt_save(struct grant_work *work, struct record_store *records)
{
    struct vault *vault = work->store->vault;
    struct record_name name = {VAULT_ATTEMPTS, buf_span(&work->key)};
    if (!(work->attempt = attempt_decode(buf_span(&work->plain), 0, &work->err)))
        return;
    work->answer = grant_work_answer(
        grant_record_put(vault, records, name, &work->plain, &work->generation, &work->err), GRANT_STORE_CONFLICT);
    if (work->answer == GRANT_STORE_DONE) {
        work->attempt->generation = work->generation;
        return;
    }
    attempt_free(work->attempt);
    work->attempt = NULL;
}

static void run_attempt_add(struct grant_work *work, struct record_store *records)
{
    run_attempt_save(work, records);
    if (work->answer == GRANT_STORE_DONE &&
        !attempt_record_trim(work->store->vault, records, buf_span(&work->key), &work->err))
        work->answer = GRANT_STORE_FAILED;
}

static void finish_attempt(struct grant_work *work)
{
    if (work->answer == GRANT_STORE_DONE)
        grant_cache_wrote(work->store, work->generation);
}

void grant_store_attempt_add(struct grant_store *store, struct span secret, const struct attempt *attempt,
                             struct grant_request *request)
{
    struct grant_work *work = attempt_work(store, request, run_attempt_add, secret, attempt);
    work->finish = finish_attempt;
    grant_work_start(work);
}

void grant_store_attempt_save(struct grant_store *store, struct span secret, const struct attempt *attempt,
                              struct grant_request *request)
{
    struct grant_work *work = attempt_work(store, request, run_attempt_save, secret, attempt);
    work->finish = finish_attempt;
    grant_work_start(work);
}

static void run_attempts_expire(struct grant_work *work, struct record_store *records)
{
    if (attempt_record_expire(work->store->vault, records, &work->err))
        work->answer = GRANT_STORE_DONE;
}

void grant_store_attempt_expire(struct grant_store *store)
{
    grant_work_start(grant_work_new(store, NULL, run_attempts_expire));
}
