// Owns sealed objects in records: grants and registrations, on the worker's thread. Attempts are in attempt_record.c.
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "encoding.h"
#include "sealing.h"
#include "work.h"
#include <stdlib.h>

// Reads and opens a record. The caller wipes `plain`.
static enum record_answer get(struct vault *vault, struct record_store *records, struct record_name name,
                              struct buf *plain, struct record *record, struct err *err)
{
    enum record_answer answer = record_get(records, name, record, err);
    if (answer == RECORD_YES && !vault_unseal(vault, name, record->value, plain, err))
        answer = RECORD_FAILED;
    return answer;
}

enum record_answer grant_record_put(struct vault *vault, struct record_store *records, struct record_name name,
                                    struct buf *plain, int64_t *generation, struct err *err)
{
    struct buf sealed = {0};
    enum record_answer answer = RECORD_FAILED;
    if (vault_seal(vault, name, buf_span(plain), &sealed, err))
        answer = record_put(records, name, buf_span(&sealed), generation, err);
    buf_release(&sealed);
    buf_wipe(plain);
    return answer;
}

enum record_answer grant_record_remove(struct record_store *records, struct record_name name, int64_t generation,
                                       struct err *err)
{
    if (generation != GRANT_STORE_ANY)
        return record_delete(records, name, generation, err);
    for (;;) {  // again if another process has changed the record in between
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

enum record_answer grant_record_grant(struct vault *vault, struct record_store *records, struct span key,
                                      struct grant **out, struct err *err)
{
    struct buf plain = {0};
    struct record record;
    enum record_answer answer = get(vault, records, (struct record_name){VAULT_GRANTS, key}, &plain, &record, err);
    *out = NULL;
    if (answer == RECORD_YES && !(*out = grant_decode(key, buf_span(&plain), record.generation, err)))
        answer = RECORD_FAILED;
    buf_wipe(&plain);
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

enum record_answer grant_record_put_grant(struct vault *vault, struct record_store *records, const struct grant *grant,
                                          int64_t generation, struct grant **out, struct err *err)
{
    struct buf key = {0}, plain = {0};
    struct grant_key whose = grant_key(grant);
    *out = NULL;
    grant_key_encode(&whose, &key);
    grant_encode(grant, &plain);
    enum record_answer answer =
        grant_record_put(vault, records, (struct record_name){VAULT_GRANTS, buf_span(&key)}, &plain, &generation, err);
    if (answer == RECORD_YES)
        *out = stored_copy(grant, generation);
    else if (answer == RECORD_NO && grant_record_grant(vault, records, buf_span(&key), out, err) == RECORD_FAILED)
        answer = RECORD_FAILED;
    buf_release(&key);
    return answer;
}

// A dead grant does not change any more: a record that was updated after `before` need not be opened.
struct grant_sweep {
    struct vault *vault;
    struct record_store *records;
    int64_t before;
    struct err *err;
    bool ok;
};

static bool visit_sweep(void *arg, const struct record *record)
{
    struct grant_sweep *sweep = arg;
    struct buf key = {0}, plain = {0};
    struct grant *grant = NULL;
    struct err ignored;  // a grant that cannot be opened is reported when it is used
    int64_t generation = record->generation;
    if (record->updated_ms / 1000 > sweep->before)
        return true;
    buf_put_span(&key, record->key);
    struct record_name name = {VAULT_GRANTS, buf_span(&key)};
    if (vault_unseal(sweep->vault, name, record->value, &plain, &ignored))
        grant = grant_decode(buf_span(&key), buf_span(&plain), generation, &ignored);
    buf_wipe(&plain);
    if (grant && grant->is.dead_at && grant->is.dead_at <= sweep->before)
        sweep->ok = record_delete(sweep->records, name, generation, sweep->err) != RECORD_FAILED;
    grant_unref(grant);
    buf_release(&key);
    return sweep->ok;
}

bool grant_record_sweep(struct vault *vault, struct record_store *records, int64_t now, struct err *err)
{
    struct grant_sweep sweep = {vault, records, now - GRANT_DEAD_S, err, true};
    return record_scan(records, (struct record_name){VAULT_GRANTS, span_make("", 0)}, visit_sweep, &sweep, err) &&
           sweep.ok;
}

// ---- registrations --------------------------------------------------------------------------

enum record_answer grant_record_registration(struct vault *vault, struct record_store *records, struct span key,
                                             struct registration **out, struct err *err)
{
    struct buf plain = {0};
    struct record record;
    enum record_answer answer = get(vault, records, (struct record_name){VAULT_CLIENTS, key}, &plain, &record, err);
    *out = NULL;
    if (answer == RECORD_YES && !(*out = registration_decode(key, buf_span(&plain), record.generation, err)))
        answer = RECORD_FAILED;
    buf_wipe(&plain);
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

enum record_answer grant_record_put_registration(struct vault *vault, struct record_store *records,
                                                 const struct registration *registration, int64_t generation,
                                                 struct registration **out, struct err *err)
{
    struct buf key = {0}, plain = {0};
    struct registration_key whose = {registration->tenant, registration->issuer, registration->redirect};
    *out = NULL;
    registration_key_encode(&whose, &key);
    registration_encode(registration, &plain);
    enum record_answer answer =
        grant_record_put(vault, records, (struct record_name){VAULT_CLIENTS, buf_span(&key)}, &plain, &generation, err);
    if (answer == RECORD_YES)
        *out = stored_registration(registration, generation);
    else if (answer == RECORD_NO &&
             grant_record_registration(vault, records, buf_span(&key), out, err) == RECORD_FAILED)
        answer = RECORD_FAILED;
    buf_release(&key);
    return answer;
}

// If another process changes the registration in between, its change is kept and this one is dropped.
enum record_answer grant_record_amend(struct vault *vault, struct record_store *records, struct span key,
                                      const char *client_id, const char *method, struct err *err)
{
    struct registration *found = NULL, *stored = NULL;
    enum record_answer answer = grant_record_registration(vault, records, key, &found, err);
    if (answer == RECORD_YES && strcmp(found->is.client_id, client_id) != 0)
        answer = RECORD_NO;
    if (answer == RECORD_YES) {
        if (method) {
            free(found->is.auth_method);
            found->is.auth_method = mem_string(method);
        } else {
            found->is.suspect_at = clock_wall_s();
        }
        answer = grant_record_put_registration(vault, records, found, found->generation, &stored, err);
    }
    registration_unref(found);
    registration_unref(stored);
    return answer;
}

// Takes a lease that is never released: after each registration it is held until it expires.
enum record_answer grant_record_claim(struct record_store *records, struct span key, struct err *err)
{
    struct record_lease lease = {.length_ms = GRANT_STORE_REGISTER_MS};
    int64_t free_in_ms = 0;
    struct buf name = {0};
    buf_put_text(&name, "register ");
    buf_put_span(&name, key);
    enum record_answer answer = record_lease_take(records, buf_span(&name), &lease, &free_in_ms, err);
    if (answer == RECORD_NO)
        (void)err_set(err, ERR_UNAVAILABLE,
                      "another registration was attempted there less than a minute ago: try again in %lld seconds",
                      (long long)(free_in_ms + 999) / 1000);
    buf_release(&name);
    return answer;
}

// ---- authorization servers ------------------------------------------------------------------

static const struct field issuer_table[] = {
    {FIELD_TIME, 1, offsetof(struct issuer_notes, resource_refused_at)},
    {FIELD_TIME, 2, offsetof(struct issuer_notes, documents_refused_at)},
    {0},
};

void grant_record_issuer_key(const char *tenant, const char *issuer, struct buf *out)
{
    fields_put_key(out, (const char *const[]){tenant, issuer}, 2);
}

static enum record_answer get_issuer(struct vault *vault, struct record_store *records, struct span key,
                                     struct issuer_notes *out, int64_t *generation, struct err *err)
{
    struct buf plain = {0};
    struct record record;
    enum record_answer answer = get(vault, records, (struct record_name){VAULT_ISSUERS, key}, &plain, &record, err);
    *out = (struct issuer_notes){0};
    *generation = answer == RECORD_YES ? record.generation : 0;
    if (answer == RECORD_YES && !fields_decode(issuer_table, buf_span(&plain), out, err))
        answer = RECORD_FAILED;
    buf_wipe(&plain);
    return answer;
}

enum record_answer grant_record_issuer(struct vault *vault, struct record_store *records, struct span key,
                                       struct issuer_notes *out, struct err *err)
{
    int64_t generation;
    return get_issuer(vault, records, key, out, &generation, err);
}

// The last write wins: a conflict is retried here and never reported.
enum record_answer grant_record_put_issuer(struct vault *vault, struct record_store *records, struct span key,
                                           const struct issuer_notes *notes, struct err *err)
{
    for (;;) {
        struct issuer_notes all;
        struct buf plain = {0};
        int64_t generation;
        if (get_issuer(vault, records, key, &all, &generation, err) == RECORD_FAILED)
            return RECORD_FAILED;
        if (notes->resource_refused_at)
            all.resource_refused_at = notes->resource_refused_at;
        if (notes->documents_refused_at)
            all.documents_refused_at = notes->documents_refused_at;
        fields_encode(issuer_table, &all, &plain);
        enum record_answer answer =
            grant_record_put(vault, records, (struct record_name){VAULT_ISSUERS, key}, &plain, &generation, err);
        if (answer != RECORD_NO)
            return answer;
    }
}

// ---- configured clients ---------------------------------------------------------------------

// Bindings are stored in the same space as the notes, under keys of three texts.
struct binding {
    char *issuer;
};

static const struct field binding_table[] = {
    {FIELD_TEXT, 1, offsetof(struct binding, issuer)},
    {0},
};

static enum record_answer get_binding(struct vault *vault, struct record_store *records, struct span key, char **issuer,
                                      struct err *err)
{
    struct buf plain = {0};
    struct record record;
    struct binding bound = {0};
    enum record_answer answer = get(vault, records, (struct record_name){VAULT_ISSUERS, key}, &plain, &record, err);
    if (answer == RECORD_YES && !fields_decode(binding_table, buf_span(&plain), &bound, err))
        answer = RECORD_FAILED;
    *issuer = mem_string(bound.issuer);
    fields_release(binding_table, &bound);
    buf_wipe(&plain);
    return answer;
}

enum record_answer grant_record_bind(struct vault *vault, struct record_store *records, struct span key, char **issuer,
                                     struct err *err)
{
    for (;;) {  // again if another process has stored a binding in between
        struct binding wish = {*issuer};
        struct buf plain = {0};
        int64_t generation = 0;
        char *bound;
        enum record_answer answer = get_binding(vault, records, key, &bound, err);
        if (answer == RECORD_YES) {
            bool same = bound && strcmp(bound, *issuer) == 0;
            free(*issuer);
            *issuer = bound;
            return same ? RECORD_YES : RECORD_NO;
        }
        free(bound);
        if (answer == RECORD_FAILED)
            return answer;
        fields_encode(binding_table, &wish, &plain);
        answer = grant_record_put(vault, records, (struct record_name){VAULT_ISSUERS, key}, &plain, &generation, err);
        if (answer != RECORD_NO)
            return answer;
    }
}
