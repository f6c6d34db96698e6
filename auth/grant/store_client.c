// Owns binding a configured client to one authorization server, as the loop sees it.
#include "base/mem.h"
#include "encoding.h"
#include "work.h"

static void run_client_bind(struct grant_work *work, struct record_store *records)
{
    work->answer = grant_work_answer(
        grant_record_bind(work->store->vault, records, buf_span(&work->key), &work->issuer, &work->err),
        GRANT_STORE_CONFLICT);
}

void grant_store_client_bind(struct grant_store *store, const struct client_place *place, const char *issuer,
                             struct grant_request *request)
{
    struct grant_work *work = grant_work_new(store, request, run_client_bind);
    fields_put_key(&work->key, (const char *const[]){place->tenant, place->server_url, place->client_id}, 3);
    work->issuer = mem_string(issuer);
    grant_work_start(work);
}
