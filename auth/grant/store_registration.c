// Owns registrations in the grant store, as the loop sees them.
#include "base/mem.h"
#include "encoding.h"
#include "work.h"

static void run_registration_find(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(
        grant_record_registration(work->store->vault, records, buf_span(&work->key), &work->registration, &work->err),
        GRANT_STORE_ABSENT);
}

void grant_store_registration_find(struct grant_store *store, const struct registration_key *key,
                                   struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_registration_find);
    registration_key_encode(key, &work->key);
    grant_work_start(work);
}

static void run_registration_save(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(grant_record_put_registration(work->store->vault, records, work->give_registration,
                                                                   work->generation, &work->registration, &work->err),
                                     GRANT_STORE_CONFLICT);
}

void grant_store_registration_save(struct grant_store *store, const struct registration *registration,
                                   int64_t generation, struct grant_request *request)
{
    struct registration *give = registration_ref(registration);
    struct grant_work *work = grant_work_new(store, request, run_registration_save);
    work->give_registration = give;
    work->generation = generation;
    grant_work_start(work);
}

static void run_registration_remove(struct grant_work *work, struct record_store *records)
{
    struct record_name name = {VAULT_CLIENTS, buf_span(&work->key)};
    struct record record;
    enum record_answer answer = grant_record_remove(records, name, work->generation, &work->err);
    work->answer = grant_work_answer(answer, GRANT_STORE_ABSENT);
    if (answer == RECORD_NO && record_get(records, name, &record, &work->err) == RECORD_YES)
        work->answer = GRANT_STORE_CONFLICT;
}

void grant_store_registration_remove(struct grant_store *store, const struct registration_key *key, int64_t generation,
                                     struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_registration_remove);
    registration_key_encode(key, &work->key);
    work->generation = generation;
    grant_work_start(work);
}

static void run_registration_amend(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(grant_record_amend(work->store->vault, records, buf_span(&work->key),
                                                        work->client_id, work->method, &work->err),
                                     GRANT_STORE_ABSENT);
}

void grant_store_registration_method(struct grant_store *store, const struct registration_key *key,
                                     const char *client_id, const char *method, struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_registration_amend);
    registration_key_encode(key, &work->key);
    work->client_id = mem_string(client_id);
    work->method = mem_string(method);
    grant_work_start(work);
}

void grant_store_registration_suspect(struct grant_store *store, const struct registration_key *key,
                                      const char *client_id, struct grant_request *request)
{
    grant_store_registration_method(store, key, client_id, NULL, request);
}

static void run_registration_claim(struct grant_work *work, struct record_store *records)
{
    work->answer =
        grant_work_answer(grant_record_claim(records, buf_span(&work->key), &work->err), GRANT_STORE_CONFLICT);
}

void grant_store_registration_claim(struct grant_store *store, const char *tenant, const char *issuer,
                                    struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_registration_claim);
    grant_record_issuer_key(tenant, issuer, &work->key);
    grant_work_start(work);
}
