// Owns sealed objects in records: grants and registrations, on the worker's thread. Attempts are in token_attempt.c.
#include "base/log.h"
#include "base/mem.h"
#include "token_work.h"
#include <stdlib.h>

// Reads and opens a record. `plain` is the caller's to wipe.
static enum record_answer get(struct vault *vault, struct record_store *records, struct record_name name,
                              struct buf *plain, struct record *record, struct err *err)
{
    enum record_answer answer = record_get(records, name, record, err);
    if (answer == RECORD_YES && !vault_unseal(vault, name, record->value, plain, err))
        answer = RECORD_FAILED;
    return answer;
}

enum record_answer token_record_put(struct vault *vault, struct record_store *records, struct record_name name,
                                    struct buf *plain, int64_t *generation, struct err *err)
{
    struct buf sealed = {0};
    enum record_answer answer = RECORD_FAILED;
    if (vault_seal(vault, name, buf_span(plain), &sealed, err))
        answer = record_put(records, name, buf_span(&sealed), generation, err);
    buf_release(&sealed);
    vault_wipe(plain);
    return answer;
}

enum record_answer token_record_remove(struct record_store *records, struct record_name name, int64_t generation,
                                       struct err *err)
{
    if (generation != TOKEN_ANY)
        return record_delete(records, name, generation, err);
    for (;;) {  // each time round somebody else has changed it
        struct record record;
        enum record_answer answer = record_get(records, name, &record, err);
        if (answer == RECORD_YES)
            answer = record_delete(records, name, record.generation, err);
        else
            return answer;
        if (answer != RECORD_NO)
            return answer;
    }
}

// ---- grants ---------------------------------------------------------------------------------

enum record_answer token_record_grant(struct vault *vault, struct record_store *records, struct span key,
                                      struct grant **out, struct err *err)
{
    struct buf plain = {0};
    struct record record;
    enum record_answer answer = get(vault, records, (struct record_name){VAULT_GRANTS, key}, &plain, &record, err);
    *out = NULL;
    if (answer == RECORD_YES && !(*out = grant_decode(key, buf_span(&plain), record.generation, err)))
        answer = RECORD_FAILED;
    vault_wipe(&plain);
    return answer;
}

static struct grant *stored_copy(const struct grant *grant, int64_t generation)
{
    struct grant_fields fields = {0};
    struct grant_key key = grant_key(grant);
    grant_fields_copy(&grant->is, &fields);
    struct grant *copy = grant_new(&key, &fields);
    copy->generation = generation;
    return copy;
}

enum record_answer token_record_put_grant(struct vault *vault, struct record_store *records, const struct grant *grant,
                                          int64_t generation, struct grant **out, struct err *err)
{
    struct buf key = {0}, plain = {0};
    struct grant_key whose = grant_key(grant);
    *out = NULL;
    grant_key_encode(&whose, &key);
    grant_encode(grant, &plain);
    enum record_answer answer =
        token_record_put(vault, records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, &plain, &generation, err);
    if (answer == RECORD_YES)
        *out = stored_copy(grant, generation);
    else if (answer == RECORD_NO && token_record_grant(vault, records, buf_span(&key), out, err) == RECORD_FAILED)
        answer = RECORD_FAILED;
    buf_release(&key);
    return answer;
}

// ---- registrations --------------------------------------------------------------------------

enum record_answer token_record_registration(struct vault *vault, struct record_store *records, struct span key,
                                             struct registration **out, struct err *err)
{
    struct buf plain = {0};
    struct record record;
    enum record_answer answer = get(vault, records, (struct record_name){VAULT_CLIENTS, key}, &plain, &record, err);
    *out = NULL;
    if (answer == RECORD_YES && !(*out = registration_decode(key, buf_span(&plain), record.generation, err)))
        answer = RECORD_FAILED;
    vault_wipe(&plain);
    return answer;
}

static struct registration *stored_registration(const struct registration *registration, int64_t generation)
{
    struct registration_fields fields = {0};
    struct registration_key key = {registration->tenant, registration->issuer, registration->redirect};
    registration_fields_copy(&registration->is, &fields);
    struct registration *copy = registration_new(&key, &fields);
    copy->generation = generation;
    return copy;
}

enum record_answer token_record_put_registration(struct vault *vault, struct record_store *records,
                                                 const struct registration *registration, int64_t generation,
                                                 struct registration **out, struct err *err)
{
    struct buf key = {0}, plain = {0};
    struct registration_key whose = {registration->tenant, registration->issuer, registration->redirect};
    *out = NULL;
    registration_key_encode(&whose, &key);
    registration_encode(registration, &plain);
    enum record_answer answer =
        token_record_put(vault, records, (struct record_name){VAULT_CLIENTS, buf_span(&key)}, &plain, &generation, err);
    if (answer == RECORD_YES)
        *out = stored_registration(registration, generation);
    else if (answer == RECORD_NO &&
             token_record_registration(vault, records, buf_span(&key), out, err) == RECORD_FAILED)
        answer = RECORD_FAILED;
    buf_release(&key);
    return answer;
}
