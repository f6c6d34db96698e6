// Owns the notes about authorization servers in the grant store, as the loop sees them.
#include "work.h"

static void run_issuer_find(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(
        grant_record_issuer(work->store->vault, records, buf_span(&work->key), &work->notes, &work->err),
        GRANT_STORE_ABSENT);
}

void grant_store_issuer_find(struct grant_store *store, const char *tenant, const char *issuer,
                             struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_issuer_find);
    grant_record_issuer_key(tenant, issuer, &work->key);
    grant_work_start(work);
}

static void run_issuer_note(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(
        grant_record_put_issuer(work->store->vault, records, buf_span(&work->key), &work->notes, &work->err),
        GRANT_STORE_CONFLICT);
}

void grant_store_issuer_note(struct grant_store *store, const char *tenant, const char *issuer,
                             const struct issuer_notes *notes, struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_issuer_note);
    grant_record_issuer_key(tenant, issuer, &work->key);
    work->notes = *notes;
    grant_work_start(work);
}
