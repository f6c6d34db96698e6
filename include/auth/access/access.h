// The credential for one server: none, a configured token, or a token that is obtained and refreshed with OAuth.
//
// An access belongs to one server and one owner of grants (tenant, user). It holds the current token, and refreshes it
// before it expires and when the server refuses it: once for all waiting requests (F3), and once among all processes,
// through the grant store's lease (F4). It never logs in: without a grant, the error names the login command to run
// (F17).
#ifndef AUTH_ACCESS_ACCESS_H
#define AUTH_ACCESS_ACCESS_H

#include "auth/login/access_options.h"
#include "auth/oauth/oauth.h"
#include "base/list.h"
#include "loop/loop.h"

// The owner of grants that do not belong to a user: those of the command line and of `mode: shared`.
#define ACCESS_TENANT "default"
#define ACCESS_SHARED_USER "shared"

struct access;
struct grant_store;
struct http_client;
struct http_transfer;

struct access_spec {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;           // contains the grants; NULL: grants are not used
    struct exchanged_tokens *exchanged;  // tokens that were exchanged earlier; NULL: they are not kept
    enum access_mode mode;
    const struct access_options *options;
    const char *tenant, *user;
    const char *server_url, *server_name;
    const char *probe;     // as in struct login_flow_spec; not copied
    char *const *issuers;  // allowed domains of authorization servers (N5); NULL: any
    // Reports each refresh for the audit log, with the error if it failed. May be NULL.
    void (*on_refreshed)(void *arg, const char *issuer, const struct err *err);
    // H18: returns the milliseconds that a token request to this issuer has to wait; 0: it may be sent, and is counted.
    // May be NULL: no wait.
    int64_t (*wait_for_issuer)(void *arg, const char *issuer);
    void *arg;
    int64_t (*clock)(void);  // seconds since the epoch, for tests; NULL: the wall clock
};

struct access *access_new(const struct access_spec *spec);
void access_free(struct access *access);

// The value for the Authorization header; NULL: no credential. The version changes whenever the value changes.
const char *access_header(const struct access *access);
unsigned access_version(const struct access *access);

// A wait for a token. on_ready is called once, from the loop, unless the wait is cancelled; `err` is NULL on success.
struct access_wait {
    void (*on_ready)(struct access_wait *wait, const struct err *err);
    void *arg;
    struct list node;  // private
};

// Gets a valid token. A wait that is already in progress goes on with this request.
void access_get(struct access *access, struct access_wait *wait);
// The server refused (401) the token of this version: gets a new token.
void access_renew(struct access *access, unsigned version, struct access_wait *wait);
void access_cancel(struct access_wait *wait);
// Reports whether the held token must not be sent: it has expired, or another process has changed the store. Then
// access_get() gets a valid one.
bool access_stale(const struct access *access);

// Lends the caller's own token to the access during a call, to be exchanged when needed; `expires` is its expiry. The
// token is sent only to the configured issuer or identity provider (H12). Each take needs a drop; the last drop wipes
// the token.
void access_take_caller_token(struct access *access, struct span token, int64_t expires);
void access_drop_caller_token(struct access *access);

// The server refuses the token, and no other one could be obtained. For a short time access_get() then fails, unless a
// new login provides another token. So repeated calls cause no requests to the server or the authorization server.
void access_hold_back(struct access *access);

// The grant was replaced or removed: drops the held token. Waiting requests get the current one.
void access_forget(struct access *access);
// Checks whether the held grant is still in the store, because another process may delete or replace it. To be called
// about once a second. Returns true once after the grant was deleted (then no token is held any more) or replaced by
// another login.
bool access_recheck(struct access *access);
// The number of the login that the token is from. It changes with each login, and refreshes keep it. 0: unknown, or the
// mode has no logins.
int64_t access_login(const struct access *access);
// As access_login(), for a new connection: earlier deletions and replacements of the grant are not reported to it.
int64_t access_connect(struct access *access);

// Takes the challenge from the headers of the server's refusal (401, or 403 for insufficient scope), for a later login.
void access_hear(struct access *access, struct http_transfer *transfer);
const struct oauth_challenge *access_challenge(const struct access *access);
// Reports whether access_renew() will request the additional scope of the challenge (A9): the mode needs no user, no
// scope is configured, and the scope was not requested before.
bool access_can_widen(const struct access *access);
// The error for a server that still refuses the token after a renewal; it says what to do.
void access_refused(const struct access *access, bool scope, struct err *err);
const char *access_scope(const struct access *access);  // the scope that was requested or granted last; NULL: unknown

// The grant in a list that fits the server best; NULL if no grant fits. For commands.
const struct grant *access_pick(struct grant *const *grants, size_t count, const char *server_url);

#endif
