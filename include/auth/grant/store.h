// The grant store: each user's grants at the servers behind the gateway, client registrations and logins on their way,
// sealed (auth/grant/vault.h) in records (store/record.h), for the loop.
//
// A grant belongs to (tenant, user, issuer, resource), and there is no way to ask for one without saying whose it is. The
// texts are compared as bytes and never reshaped.
//
// Work that touches the disk is a `struct grant_request`, embedded in its owner: fill on_done and arg, start it with one
// of the functions below; on_done is called once, on the loop, never inside the function that started it. Until then
// grant_request_cancel() may be called, and then on_done is not: what was started may still happen. A command without a
// running loop calls grant_store_wait() and looks at `answer`.
//
//     struct grant_request request = {.on_done = …, .arg = …};
//     grant_store_find(store, &key, &request);
//
// The hot path is grant_store_cached(): a grant that was used before, without disk or decryption. It follows what other
// processes do within a second: while it cannot be sure of that, it answers NULL.
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
    GRANT_STORE_CACHE = 4096,     // grants kept open
    GRANT_STORE_POLL_MS = 250,    // how often others' changes are looked for
    GRANT_STORE_STALE_MS = 900,   // and when the cache is not trusted any more
    GRANT_STORE_HOLD_MS = 10000,  // how long others wait for a holder that does not renew its lease any more
    GRANT_STORE_ATTEMPT_MS = 600000,
    GRANT_STORE_REGISTER_MS = 60000,
    GRANT_STORE_ATTEMPTS = 2000,
    GRANT_STORE_ATTEMPTS_OPEN = 5,
};

// ---- the store ------------------------------------------------------------------------------

// Opens records and vault. This blocks: it is for the start.
struct grant_store *grant_store_open(struct loop *loop, const struct record_config *records,
                                     const struct vault_config *vault, struct err *err) MUST_CHECK;
// Finishes what was started and calls its on_done. Before loop_free(), and never from an on_done. How many refreshed
// grants could not be stored and are lost with it (F10).
size_t grant_store_close(struct grant_store *store);
// Waits until nothing is under way, or the time is over (false). For commands; not from an on_done.
bool grant_store_wait(struct grant_store *store, int64_t timeout_ms);

// Zero is "it could not be done", and then `err` says why; it never means that something is or is not there.
enum grant_answer {
    GRANT_STORE_FAILED,
    GRANT_STORE_ABSENT,  // there is none
    GRANT_STORE_CONFLICT,  // somebody changed it meanwhile: `grant` or `registration` is what is there now, or NULL if nothing
    GRANT_STORE_DONE,
};

// What is remembered about an authorization server, for all users of a tenant. Times; 0: never.
#define ISSUER_NOTE_S (30LL * 86400)  // so long it is believed: people mend their servers
struct issuer_notes {
    int64_t resource_refused_at;   // F14: a refresh with `resource` was refused, and one without it was not
    int64_t documents_refused_at;  // G3: a login with a metadata document as client id was, or was left lying
};

struct grant_request {
    void (*on_done)(struct grant_request *request);  // NULL: nobody waits for it
    void *arg;
    // What came out. The objects are the request's until it is started again or grant_request_release(): use *_ref.
    enum grant_answer answer;
    struct err err;
    struct grant *grant;
    struct registration *registration;
    struct grant **grants;   // of a list
    size_t count;            // of grants, or of what was purged
    struct grant **damaged;  // of a list: what cannot be opened, of which the key is all that is known; err says why
    size_t damaged_count;
    struct attempt *attempt;
    struct issuer_notes notes;  // of an authorization server
    char *issuer;               // that a client belongs to
    struct grant_work *work;    // the store's own; NULL: not under way
};

void grant_request_cancel(struct grant_request *request);
void grant_request_release(struct grant_request *request);  // cancels, and lets go of what came out

// A grant of this key that was found or saved before, or NULL: then ask grant_store_find(). Not a new reference.
const struct grant *grant_store_cached(struct grant_store *store, const struct grant_key *key);

// Another number after others have changed something: what was read before that may not be true any more.
uint64_t grant_store_version(const struct grant_store *store);

void grant_store_find(struct grant_store *store, const struct grant_key *key, struct grant_request *request);
// `generation`: what must be stored now, 0: nothing. After GRANT_STORE_DONE `request->grant` is the grant as it is stored.
void grant_store_save(struct grant_store *store, const struct grant *grant, int64_t generation,
                      struct grant_request *request);
#define GRANT_STORE_ANY ((int64_t)-1)  // whatever is there: a person logs out
void grant_store_remove(struct grant_store *store, const struct grant_key *key, int64_t generation,
                        struct grant_request *request);

// Grants of a tenant, of one user if `user` is not NULL, at one issuer if `issuer` is not NULL. A tenant of NULL is all of
// them: for an administrator's command only. A list of which some could not be opened is GRANT_STORE_DONE with an `err`,
// and they are `damaged`. To purge opens nothing.
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

// G10: marks the registration if it is still that of this client; GRANT_STORE_ABSENT: it is not.
void grant_store_registration_suspect(struct grant_store *store, const struct registration_key *key,
                                      const char *client_id, struct grant_request *request);
// T4: how this client proves itself, if it is still that of the registration; GRANT_STORE_ABSENT: it is not.
void grant_store_registration_method(struct grant_store *store, const struct registration_key *key,
                                     const char *client_id, const char *method, struct grant_request *request);
// G13: who may register at this authorization server now, of all processes: GRANT_STORE_DONE for one of them in
// GRANT_STORE_REGISTER_MS. GRANT_STORE_CONFLICT: `err` says when to try again.
void grant_store_registration_claim(struct grant_store *store, const char *tenant, const char *issuer,
                                    struct grant_request *request);

void grant_store_issuer_find(struct grant_store *store, const char *tenant, const char *issuer,
                             struct grant_request *request);
// What is 0 in `notes` stays as it was.
void grant_store_issuer_note(struct grant_store *store, const char *tenant, const char *issuer,
                             const struct issuer_notes *notes, struct grant_request *request);

// D16: which authorization server the configured client of a server belongs to: the first that is asked for here, for
// all processes. GRANT_STORE_DONE: this one. GRANT_STORE_CONFLICT: another one, `request->issuer`; the client is not to be shown here.
struct client_place {
    const char *tenant, *server_url, *client_id;
};
void grant_store_client_bind(struct grant_store *store, const struct client_place *place, const char *issuer,
                             struct grant_request *request);

// A login on its way (auth/grant/attempt.h), under a secret of 256 bits that leads to it and is stored as a digest only, for
// at most GRANT_STORE_ATTEMPT_MS. To add one takes away the oldest of the same user at the same server when there are more
// than GRANT_STORE_ATTEMPTS_OPEN, and one when there are more than GRANT_STORE_ATTEMPTS: that
// nobody has touched for longest of those that are over, else of the same tenant, else of all.
void grant_store_attempt_add(struct grant_store *store, struct span secret, const struct attempt *attempt,
                             struct grant_request *request);
// GRANT_STORE_ABSENT: there is none, or it is too late. After GRANT_STORE_DONE `request->attempt` is it.
void grant_store_attempt_find(struct grant_store *store, struct span secret, struct grant_request *request);
// In place of the one of its generation: of all who try, GRANT_STORE_DONE for exactly one, and `request->attempt` is it as it is
// stored. GRANT_STORE_CONFLICT for the others.
void grant_store_attempt_save(struct grant_store *store, struct span secret, const struct attempt *attempt,
                              struct grant_request *request);
// Deletes those whose time has long been over; nobody waits for it. To be called every minute or so.
void grant_store_attempt_expire(struct grant_store *store);

// A key of 32 bytes that all processes that share the store have in common; it outlives them.
const unsigned char *grant_store_key(const struct grant_store *store);

// ---- refreshing once ------------------------------------------------------------------------
//
// Of all threads and processes that find a token too old, one refreshes it:
//
//     grant_lease_start(store, &lease, &key, old generation)
//       on_ready: LEASE_HELD     refresh with lease->grant, which was read after the lease was got; then
//                                   grant_lease_save(&lease, new grant) → on_saved, or
//                                   grant_lease_end(&lease) if there is nothing to save
//                 LEASE_CHANGED  somebody else refreshed meanwhile: use lease->grant; no lease is held
//                 LEASE_GONE     there is no grant any more; nothing may be made up
//                 LEASE_LATE     somebody else holds it and has not finished in the time we had; lease->grant is still the
//                                old one, good as long as it has not expired
//                 LEASE_FAILED   see err
//
// The lease is renewed while it is held; a holder that dies or stands still loses it after GRANT_STORE_HOLD_MS. If that
// happens to one that lives, saving still goes by the generation: a result is stored unless somebody else has stored one
// (GRANT_STORE_CONFLICT). Nothing here deletes a grant.
//
// If a refreshed grant cannot be written (a full disk), the answer is GRANT_STORE_FAILED, the store keeps the grant in memory
// (grant_store_cached has it), holds the lease, and tries again every second until it is written; grant_store_unsaved()
// counts those.

enum grant_lease_state {
    LEASE_FAILED,
    LEASE_LATE,
    LEASE_GONE,
    LEASE_CHANGED,
    LEASE_HELD,
};

struct grant_lease {
    void (*on_ready)(struct grant_lease *lease);
    void (*on_saved)(struct grant_lease *lease);  // after grant_lease_save: `answer`, and `grant` is what is stored
    void *arg;
    int64_t wait_ms;  // for somebody else to finish, at most; 0: 35 s
    enum grant_lease_state state;
    enum grant_answer answer;
    struct err err;
    struct grant *grant;            // the lease's until grant_lease_end()
    struct grant_lease_work *work;  // the store's own
};

void grant_lease_start(struct grant_store *store, struct grant_lease *lease, const struct grant_key *key,
                       int64_t generation);
void grant_lease_save(struct grant_lease *lease, const struct grant *grant);
// At any time, more than once, also while it waits (then there is no on_ready) or saves (the save still happens).
void grant_lease_end(struct grant_lease *lease);
// `why` may be NULL; if there are any it says why one of them could not be written.
size_t grant_store_unsaved(const struct grant_store *store, struct err *why);

#endif
