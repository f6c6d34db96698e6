// Shared by the files of the grant store: the store itself, its cache, and sealed objects in records.
#ifndef AUTH_TOKEN_WORK_H
#define AUTH_TOKEN_WORK_H

#include "auth/grant/store.h"
#include "auth/grant/vault.h"
#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

struct grant_store {
    struct loop *loop;
    struct store *store;
    struct vault *vault;                 // used by the worker only, once the store is open
    unsigned char key[VAULT_KEY_BYTES];  // grant_store_key()
    bool closing;

    // The cache: its grants were current at generation `newest` of the store, which was last seen at `checked_ms`.
    struct map cache;  // encoded key -> struct grant_cached
    struct list recent;
    int64_t newest, checked_ms;
    uint64_t version;  // grant_store_version()
    struct loop_timer poll, sweep;
    struct grant_work *polling;
    bool poll_soon;  // another process has begun to write

    struct list works;    // works on the worker
    struct list refused;  // works that the worker's full queue has refused, until their on_done is called
    struct loop_task refuse;
    struct list leases;
    size_t unsaved;
    struct err unsaved_why;  // of the last failed write
};

// ---- works (work.c) -------------------------------------------------------------------------

// One request on its way to the worker and back.
struct grant_work {
    struct list node;  // in `works` or `refused`
    struct store_job job;
    struct grant_store *store;
    struct grant_request *request;  // NULL: cancelled
    void (*run)(struct grant_work *work, struct record_store *records);
    void (*finish)(struct grant_work *work);  // on the loop, before on_done; NULL: nothing to do
    int64_t started_ms;
    // input
    struct buf key;
    int64_t generation;
    struct grant *give;
    struct registration *give_registration;
    struct buf plain;  // an attempt
    char *client_id, *method;
    struct issuer_notes notes;  // also a result
    char *user, *issuer;        // a filter; `issuer` is also that of a client, and a result
    // results
    enum grant_answer answer;
    struct err err;
    int64_t newest;
    struct grant *grant;
    struct registration *registration;
    struct attempt *attempt;
    struct grant **grants, **damaged;
    size_t count, damaged_count;
};

struct grant_work *grant_work_new(struct grant_store *store, struct grant_request *request,
                                  void (*run_it)(struct grant_work *work, struct record_store *records));
void grant_work_start(struct grant_work *work);
void grant_work_refuse(struct loop_task *task);  // ends the works in `refused`
enum grant_answer grant_work_answer(enum record_answer answer, enum grant_answer if_no);

// ---- on the worker (record.c) ---------------------------------------------------------------

// The key is the encoded one.
enum record_answer grant_record_grant(struct vault *vault, struct record_store *records, struct span key,
                                      struct grant **out, struct err *err) MUST_CHECK;
// RECORD_YES: *out is the grant as it is stored. RECORD_NO: *out is the conflicting grant, or NULL if it does not
// exist.
enum record_answer grant_record_put_grant(struct vault *vault, struct record_store *records, const struct grant *grant,
                                          int64_t generation, struct grant **out, struct err *err) MUST_CHECK;
enum record_answer grant_record_registration(struct vault *vault, struct record_store *records, struct span key,
                                             struct registration **out, struct err *err) MUST_CHECK;
enum record_answer grant_record_put_registration(struct vault *vault, struct record_store *records,
                                                 const struct registration *registration, int64_t generation,
                                                 struct registration **out, struct err *err) MUST_CHECK;
// `generation` may be GRANT_STORE_ANY.
enum record_answer grant_record_remove(struct record_store *records, struct record_name name, int64_t generation,
                                       struct err *err) MUST_CHECK;
// Seals and writes; wipes `plain`.
enum record_answer grant_record_put(struct vault *vault, struct record_store *records, struct record_name name,
                                    struct buf *plain, int64_t *generation, struct err *err) MUST_CHECK;

// ---- on the worker (attempt_record.c) -------------------------------------------------------

// `digest` is that of the secret. RECORD_NO: the attempt does not exist or has expired.
enum record_answer attempt_record_get(struct vault *vault, struct record_store *records, struct span digest,
                                      struct attempt **out, struct err *err) MUST_CHECK;
// The key of an attempt: the digest of the secret and the digest of the owner.
void attempt_record_key(struct span secret, const struct attempt *attempt, struct buf *out);
// H9: deletes expired attempts, and one attempt each if its owner has too many or the store has too many. `key` is that
// of the new attempt, which is kept.
bool attempt_record_trim(struct vault *vault, struct record_store *records, struct span key,
                         struct err *err) MUST_CHECK;
bool attempt_record_expire(struct vault *vault, struct record_store *records, struct err *err) MUST_CHECK;

// Sets the authentication method of a registration, or marks it as suspect (method NULL). RECORD_NO: the registration
// does not exist or is not that of this client any more.
enum record_answer grant_record_amend(struct vault *vault, struct record_store *records, struct span key,
                                      const char *client_id, const char *method, struct err *err) MUST_CHECK;
enum record_answer grant_record_claim(struct record_store *records, struct span key, struct err *err) MUST_CHECK;
void grant_record_issuer_key(const char *tenant, const char *issuer, struct buf *out);
enum record_answer grant_record_issuer(struct vault *vault, struct record_store *records, struct span key,
                                       struct issuer_notes *out, struct err *err) MUST_CHECK;
enum record_answer grant_record_put_issuer(struct vault *vault, struct record_store *records, struct span key,
                                           const struct issuer_notes *notes, struct err *err) MUST_CHECK;
// RECORD_NO: the client is bound to another authorization server, which is in *issuer now.
enum record_answer grant_record_bind(struct vault *vault, struct record_store *records, struct span key, char **issuer,
                                     struct err *err) MUST_CHECK;
// Deletes grants that have been dead for GRANT_DEAD_S at this time.
bool grant_record_sweep(struct vault *vault, struct record_store *records, int64_t now, struct err *err) MUST_CHECK;

// ---- on the loop (cache.c) ------------------------------------------------------------------

const struct grant *grant_cache_find(struct grant_store *store, struct span key);
// `newest` was the newest generation before this grant was read, or is its own if it was just written.
void grant_cache_put(struct grant_store *store, struct span key, const struct grant *grant, int64_t newest,
                     int64_t started_ms);
void grant_cache_drop(struct grant_store *store, struct span key);
void grant_cache_clear(struct grant_store *store);
// This process has written an object other than a grant: if no other process wrote, the cache stays valid.
void grant_cache_wrote(struct grant_store *store, int64_t generation);
void grant_cache_checked(struct grant_store *store, int64_t newest, int64_t started_ms);

// ---- leases (lease.c) -----------------------------------------------------------------------

// A refreshed grant of this key that could not be written yet, or NULL.
const struct grant *grant_lease_unsaved(const struct grant_store *store, struct span key);
// Before the worker ends: releases the leases, and tries once more to store the unsaved grants.
void grant_lease_stop_all(struct grant_store *store);
// After the worker has ended: frees the remaining works.
void grant_lease_free_all(struct grant_store *store);

#endif
