// Owns what is stored beside grants, as the loop sees it: registrations, what is known about authorization servers, logins
// on their way.
#include "base/mem.h"
#include "fields.h"
#include "token_work.h"

// ---- registrations --------------------------------------------------------------------------

static void run_registration_find(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_record_registration(work->store->vault, records, buf_span(&work->key), &work->registration, &work->err),
        TOKEN_ABSENT);
}

void token_store_registration_find(struct token_store *store, const struct registration_key *key,
                                   struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_registration_find);
    registration_key_encode(key, &work->key);
    token_work_start(work);
}

static void run_registration_save(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(token_record_put_registration(work->store->vault, records, work->give_registration,
                                                                   work->generation, &work->registration, &work->err),
                                     TOKEN_CONFLICT);
}

void token_store_registration_save(struct token_store *store, const struct registration *registration,
                                   int64_t generation, struct token_request *request)
{
    struct registration *give = registration_ref(registration);
    struct token_work *work = token_work_new(store, request, run_registration_save);
    work->give_registration = give;
    work->generation = generation;
    token_work_start(work);
}

static void run_registration_remove(struct token_work *work, struct record_store *records)
{
    struct record_name name = {VAULT_CLIENTS, buf_span(&work->key)};
    struct record record;
    enum record_answer answer = token_record_remove(records, name, work->generation, &work->err);
    work->answer = token_work_answer(answer, TOKEN_ABSENT);
    if (answer == RECORD_NO && record_get(records, name, &record, &work->err) == RECORD_YES)
        work->answer = TOKEN_CONFLICT;
}

void token_store_registration_remove(struct token_store *store, const struct registration_key *key, int64_t generation,
                                     struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_registration_remove);
    registration_key_encode(key, &work->key);
    work->generation = generation;
    token_work_start(work);
}

static void run_registration_suspect(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_record_suspect(work->store->vault, records, buf_span(&work->key), work->client_id, &work->err),
        TOKEN_ABSENT);
}

void token_store_registration_suspect(struct token_store *store, const struct registration_key *key,
                                      const char *client_id, struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_registration_suspect);
    registration_key_encode(key, &work->key);
    work->client_id = mem_string(client_id);
    token_work_start(work);
}

// ---- authorization servers ------------------------------------------------------------------

static void run_issuer_find(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_record_issuer(work->store->vault, records, buf_span(&work->key), &work->notes, &work->err), TOKEN_ABSENT);
}

static void run_issuer_note(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_record_put_issuer(work->store->vault, records, buf_span(&work->key), &work->notes, &work->err),
        TOKEN_CONFLICT);
}

static void put_issuer(struct token_work *work, const char *tenant, const char *issuer)
{
    fields_put_key(&work->key, (const char *const[]){tenant, issuer}, 2);
}

static void run_registration_claim(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(token_record_claim(records, buf_span(&work->key), &work->err), TOKEN_CONFLICT);
}

void token_store_registration_claim(struct token_store *store, const char *tenant, const char *issuer,
                                    struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_registration_claim);
    put_issuer(work, tenant, issuer);
    token_work_start(work);
}

void token_store_issuer_find(struct token_store *store, const char *tenant, const char *issuer,
                             struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_issuer_find);
    put_issuer(work, tenant, issuer);
    token_work_start(work);
}

void token_store_issuer_note(struct token_store *store, const char *tenant, const char *issuer,
                             const struct issuer_notes *notes, struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_issuer_note);
    put_issuer(work, tenant, issuer);
    work->notes = *notes;
    token_work_start(work);
}

static void run_client_bind(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_record_bind(work->store->vault, records, buf_span(&work->key), &work->issuer, &work->err),
        TOKEN_CONFLICT);
}

void token_store_client_bind(struct token_store *store, const struct client_place *place, const char *issuer,
                             struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_client_bind);
    fields_put_key(&work->key, (const char *const[]){place->tenant, place->server_url, place->client_id}, 3);
    work->issuer = mem_string(issuer);
    token_work_start(work);
}

// ---- attempts -------------------------------------------------------------------------------

static struct token_work *attempt_work(struct token_store *store, struct token_request *request,
                                       void (*run_it)(struct token_work *work, struct record_store *records),
                                       struct span secret, const struct attempt *attempt)
{
    struct buf plain = {0}, key = {0};
    int64_t generation = attempt ? attempt->generation : 0;
    token_attempt_key(secret, attempt, &key);
    if (attempt)
        attempt_encode(attempt, &plain);  // before the request lets go of what it has: it may be the same
    struct token_work *work = token_work_new(store, request, run_it);
    work->key = key;
    work->generation = generation;
    work->plain = plain;
    return work;
}

static void run_attempt_find(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_attempt_get(work->store->vault, records, buf_span(&work->key), &work->attempt, &work->err), TOKEN_ABSENT);
}

void token_store_attempt_find(struct token_store *store, struct span secret, struct token_request *request)
{
    token_work_start(attempt_work(store, request, run_attempt_find, secret, NULL));
}

static void run_attempt_save(struct token_work *work, struct record_store *records)
{
    struct vault *vault = work->store->vault;
    struct record_name name = {VAULT_ATTEMPTS, buf_span(&work->key)};
    if (!(work->attempt = attempt_decode(buf_span(&work->plain), 0, &work->err)))
        return;
    work->answer = token_work_answer(
        token_record_put(vault, records, name, &work->plain, &work->generation, &work->err), TOKEN_CONFLICT);
    if (work->answer == TOKEN_DONE) {
        work->attempt->generation = work->generation;
        return;
    }
    attempt_free(work->attempt);
    work->attempt = NULL;
}

static void run_attempt_add(struct token_work *work, struct record_store *records)
{
    run_attempt_save(work, records);
    if (work->answer == TOKEN_DONE &&
        !token_attempt_trim(work->store->vault, records, buf_span(&work->key), &work->err))
        work->answer = TOKEN_FAILED;
}

static void finish_attempt(struct token_work *work)
{
    if (work->answer == TOKEN_DONE)
        token_cache_wrote(work->store, work->generation);
}

void token_store_attempt_add(struct token_store *store, struct span secret, const struct attempt *attempt,
                             struct token_request *request)
{
    struct token_work *work = attempt_work(store, request, run_attempt_add, secret, attempt);
    work->finish = finish_attempt;
    token_work_start(work);
}

void token_store_attempt_save(struct token_store *store, struct span secret, const struct attempt *attempt,
                              struct token_request *request)
{
    struct token_work *work = attempt_work(store, request, run_attempt_save, secret, attempt);
    work->finish = finish_attempt;
    token_work_start(work);
}

static void run_attempts_expire(struct token_work *work, struct record_store *records)
{
    if (token_attempt_expire(work->store->vault, records, &work->err))
        work->answer = TOKEN_DONE;
}

void token_store_attempts_expire(struct token_store *store)
{
    token_work_start(token_work_new(store, NULL, run_attempts_expire));
}
