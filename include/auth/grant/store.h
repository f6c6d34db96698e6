// The grant store: each user's grants at the servers behind the gateway, client registrations and pending logins,
// sealed (auth/grant/vault.h) in records (store/record.h), for the loop.
//
// A grant belongs to (tenant, user, issuer, resource), and every lookup of a grant names all four. The texts are
// compared byte for byte and never normalized.
//
// Work that touches the disk is a `struct grant_request`, embedded in its owner: fill on_done and arg, start it with
// one of the functions below; on_done is called once, on the loop, never inside the function that started it. After
// grant_request_cancel() on_done is not called, but the operation may still be carried out. A command without a running
// loop calls grant_store_wait() and reads `answer`.
//
//     struct grant_request request = {.on_done = …, .arg = …};
//     grant_store_find(store, &key, &request);
//
// The hot path is grant_store_cached(): a grant that was used before, without disk access or decryption. The cache
// notices the changes of other processes within a second; while it cannot guarantee that, grant_store_cached() returns
// NULL.
#ifndef AUTH_TOKEN_STORE_H
#define AUTH_TOKEN_STORE_H

#include "auth/grant/attempt.h"
#include "auth/grant/grant.h"
#include "auth/grant/registration.h"
#include "loop/loop.h"

struct grant_store;
struct record_config;
struct vault_config;

enum {
    GRANT_STORE_CACHE = 4096,     // decrypted grants in memory
    GRANT_STORE_POLL_MS = 250,    // interval of the polls for changes by other processes
    GRANT_STORE_STALE_MS = 900,   // the cache is not used when the last poll is older than this
    GRANT_STORE_HOLD_MS = 10000,  // a lease that is not renewed expires after this time
    GRANT_STORE_ATTEMPT_MS = 600000,
    GRANT_STORE_REGISTER_MS = 60000,
    GRANT_STORE_ATTEMPTS = 2000,
    GRANT_STORE_ATTEMPTS_OPEN = 5,
};

// ---- the store ------------------------------------------------------------------------------

// Opens the records and the vault. Blocks, so it is called at startup only.
struct grant_store *grant_store_open(struct loop *loop, const struct record_config *records,
                                     const struct vault_config *vault, struct err *err) MUST_CHECK;
// Finishes the pending requests and calls their on_done. Call it before loop_free(), and never from an on_done. Returns
// the number of refreshed grants that could not be stored and are lost (F10).
size_t grant_store_close(struct grant_store *store);
// Waits until no request is pending; returns false after a timeout. For commands; not to be called from an on_done.
bool grant_store_wait(struct grant_store *store, int64_t timeout_ms);

// GRANT_STORE_FAILED: the operation failed, with the reason in `err`; whether the object exists is unknown.
enum grant_answer {
    GRANT_STORE_FAILED,
    GRANT_STORE_ABSENT,  // the object does not exist
    // Another request or process changed the object: `grant` or `registration` is the stored one, or NULL if it is
    // gone.
    GRANT_STORE_CONFLICT,
    GRANT_STORE_DONE,
};

// Facts about an authorization server, for all users of a tenant. Times; 0: never.
#define ISSUER_NOTE_S (30LL * 86400)  // a note expires after this time, because the server may be fixed by then
struct issuer_notes {
    int64_t resource_refused_at;   // F14: a refresh with `resource` was refused, and one without it succeeded
    int64_t documents_refused_at;  // G3: a login with a metadata document as client id was refused or abandoned
};

struct grant_request {
    void (*on_done)(struct grant_request *request);  // NULL: the result is not needed
    void *arg;
    // The results. The request owns the objects until it is started again or released; use *_ref to keep one longer.
    enum grant_answer answer;
    struct err err;
    struct grant *grant;
    struct registration *registration;
    struct grant **grants;   // of grant_store_list()
    size_t count;            // of `grants`, or of purged grants
    struct grant **damaged;  // of grant_store_list(): grants that cannot be opened, with their keys only; see err
    size_t damaged_count;
    struct attempt *attempt;
    struct issuer_notes notes;  // of grant_store_issuer_find()
    char *issuer;               // of grant_store_client_bind(): the issuer that the client is bound to
    struct grant_work *work;    // private to the store; NULL: not pending
};

void grant_request_cancel(struct grant_request *request);
void grant_request_release(struct grant_request *request);  // cancels the request and frees its results

// The cached grant of this key, or NULL: then call grant_store_find(). Not a new reference.
const struct grant *grant_store_cached(struct grant_store *store, const struct grant_key *key);

// Changes whenever another process has changed the store: objects that were read earlier may be outdated.
uint64_t grant_store_version(const struct grant_store *store);

void grant_store_find(struct grant_store *store, const struct grant_key *key, struct grant_request *request);
// `generation`: that of the stored grant to replace; 0: none may exist. After GRANT_STORE_DONE `request->grant` is the
// grant as it is stored.
void grant_store_save(struct grant_store *store, const struct grant *grant, int64_t generation,
                      struct grant_request *request);
#define GRANT_STORE_ANY ((int64_t)-1)  // any generation, for a user who logs out
void grant_store_remove(struct grant_store *store, const struct grant_key *key, int64_t generation,
                        struct grant_request *request);

// Selects the grants of a tenant, of one user if `user` is not NULL, and at one issuer if `issuer` is not NULL. A
// tenant of NULL selects all tenants: for an administrator's command only. If a list contains grants that cannot be
// opened, the answer is GRANT_STORE_DONE with `err` set, and these grants are in `damaged`. Purging does not open
// grants.
struct grant_filter {
    const char *tenant, *user, *issuer;
};
void grant_store_list(struct grant_store *store, const struct grant_filter *filter, struct grant_request *request);
void grant_store_purge(struct grant_store *store, const struct grant_filter *filter, struct grant_request *request);

void grant_store_registration_find(struct grant_store *store, const struct registration_key *key,
                                   struct grant_request *request);
void grant_store_registration_save(struct grant_store *store, const struct registration *registration,
                                   int64_t generation, struct grant_request *request);
void grant_store_registration_remove(struct grant_store *store, const struct registration_key *key, int64_t generation,
                                     struct grant_request *request);

// G10: marks the registration as suspect. GRANT_STORE_ABSENT: the registration is not that of this client any more.
void grant_store_registration_suspect(struct grant_store *store, const struct registration_key *key,
                                      const char *client_id, struct grant_request *request);
// T4: sets the client's authentication method. GRANT_STORE_ABSENT: the registration is not that of this client any
// more.
void grant_store_registration_method(struct grant_store *store, const struct registration_key *key,
                                     const char *client_id, const char *method, struct grant_request *request);
// G13: limits registrations at an authorization server: in each GRANT_STORE_REGISTER_MS only one process gets
// GRANT_STORE_DONE and may register. GRANT_STORE_CONFLICT: `err` says when to try again.
void grant_store_registration_claim(struct grant_store *store, const char *tenant, const char *issuer,
                                    struct grant_request *request);

void grant_store_issuer_find(struct grant_store *store, const char *tenant, const char *issuer,
                             struct grant_request *request);
// Members of `notes` that are 0 keep their stored values.
void grant_store_issuer_note(struct grant_store *store, const char *tenant, const char *issuer,
                             const struct issuer_notes *notes, struct grant_request *request);

// D16: binds the configured client of a server to the first authorization server that it is used with, for all
// processes. GRANT_STORE_DONE: the client is bound to `issuer`. GRANT_STORE_CONFLICT: the client is bound to
// `request->issuer`, and its id and secret must not be sent to `issuer`.
struct client_place {
    const char *tenant, *server_url, *client_id;
};
void grant_store_client_bind(struct grant_store *store, const struct client_place *place, const char *issuer,
                             struct grant_request *request);

// Adds a pending login (auth/grant/attempt.h), which is found by a secret of 256 bits. Only a digest of the secret is
// stored. The attempt expires after GRANT_STORE_ATTEMPT_MS at most. Two limits are enforced by deleting an attempt:
//   - more than GRANT_STORE_ATTEMPTS_OPEN of the same user at the same server: the oldest of them
//   - more than GRANT_STORE_ATTEMPTS in all: the least recently written of the finished ones, else of the same tenant,
//     else of all
void grant_store_attempt_add(struct grant_store *store, struct span secret, const struct attempt *attempt,
                             struct grant_request *request);
// GRANT_STORE_ABSENT: the attempt does not exist or has expired. After GRANT_STORE_DONE it is in `request->attempt`.
void grant_store_attempt_find(struct grant_store *store, struct span secret, struct grant_request *request);
// Replaces the stored attempt of the same generation. Of several requests, exactly one gets GRANT_STORE_DONE, with the
// attempt as it is stored in `request->attempt`; the others get GRANT_STORE_CONFLICT.
void grant_store_attempt_save(struct grant_store *store, struct span secret, const struct attempt *attempt,
                              struct grant_request *request);
// Deletes expired attempts in the background. To be called about once a minute.
void grant_store_attempt_expire(struct grant_store *store);

// A key of 32 bytes that all processes with this store share; it is stored, so it survives restarts.
const unsigned char *grant_store_key(const struct grant_store *store);

// ---- refreshing once ------------------------------------------------------------------------
//
// When several threads or processes find that a token has expired, only one of them refreshes it:
//
//     grant_lease_start(store, &lease, &key, old generation)
//       on_ready: LEASE_HELD     refresh lease->grant, which was read after the lease was taken; then
//                                   grant_lease_save(&lease, new grant) → on_saved, or
//                                   grant_lease_end(&lease) if there is nothing to save
//                 LEASE_CHANGED  another holder has refreshed the grant: use lease->grant; no lease is held
//                 LEASE_GONE     the grant was deleted: it must not be stored again
//                 LEASE_LATE     another holder did not finish within wait_ms; lease->grant is the old grant, which may
//                                be used until it expires
//                 LEASE_FAILED   see err
//
// The lease is renewed while it is held; a holder that crashed or hangs loses it after GRANT_STORE_HOLD_MS. A holder
// that lost its lease may still save: the generation decides, and the answer is GRANT_STORE_CONFLICT if another process
// has stored a grant since. Nothing here deletes a grant.
//
// If a refreshed grant cannot be written (a full disk), the answer is GRANT_STORE_FAILED. The store then keeps the
// grant in memory (grant_store_cached() returns it), holds the lease, and retries every second until the grant is
// written; grant_store_unsaved() counts such grants.

enum grant_lease_state {
    LEASE_FAILED,
    LEASE_LATE,
    LEASE_GONE,
    LEASE_CHANGED,
    LEASE_HELD,
};

struct grant_lease {
    void (*on_ready)(struct grant_lease *lease);
    void (*on_saved)(struct grant_lease *lease);  // after grant_lease_save(): see `answer`; `grant` is the stored grant
    void *arg;
    int64_t wait_ms;  // the longest wait for another holder; 0: 35 s
    enum grant_lease_state state;
    enum grant_answer answer;
    struct err err;
    struct grant *grant;            // the lease's until grant_lease_end()
    struct grant_lease_work *work;  // private to the store
};

void grant_lease_start(struct grant_store *store, struct grant_lease *lease, const struct grant_key *key,
                       int64_t generation);
void grant_lease_save(struct grant_lease *lease, const struct grant *grant);
// May be called at any time and more than once. While the lease waits, it cancels on_ready; a save in progress
// completes.
void grant_lease_end(struct grant_lease *lease);
// The number of refreshed grants that could not be written yet; `why` (may be NULL) gets the last reason if there are
// any.
size_t grant_store_unsaved(const struct grant_store *store, struct err *why);

#endif
