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

// ---- attempts -------------------------------------------------------------------------------

static void run_attempt_put(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(token_record_put_attempt(work->store->vault, records, buf_span(&work->key),
                                                              secret_span(&work->note), &work->err),
                                     TOKEN_CONFLICT);
    secret_release(&work->note);
}

void token_store_attempt_put(struct token_store *store, struct span state, struct span note,
                             struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_attempt_put);
    buf_put_span(&work->key, state);
    secret_set(&work->note, note);
    token_work_start(work);
}

static void run_attempt_take(struct token_work *work, struct record_store *records)
{
    work->answer = token_work_answer(
        token_record_take_attempt(work->store->vault, records, buf_span(&work->key), &work->note, &work->err),
        TOKEN_ABSENT);
}

void token_store_attempt_take(struct token_store *store, struct span state, struct token_request *request)
{
    struct token_work *work = token_work_new(store, request, run_attempt_take);
    buf_put_span(&work->key, state);
    token_work_start(work);
}
