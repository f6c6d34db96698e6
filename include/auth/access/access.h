// What is presented to one server: nothing, a fixed token, or one that is got and kept fresh by OAuth.
//
// An access belongs to one server and one owner of grants (tenant, user). It holds the current token, refreshes it
// before it ends and when the server refuses it, once for all who wait (F3), and across processes through the token
// store's lease (F4). It never logs in: who has no grant is told which command does (F17).
#ifndef AUTH_ACCESS_ACCESS_H
#define AUTH_ACCESS_ACCESS_H

#include "auth/login/access_options.h"
#include "auth/oauth/oauth.h"
#include "base/list.h"
#include "loop/loop.h"

// The owner of grants that are nobody's in particular: the command line's, and `mode: shared`.
#define ACCESS_TENANT "default"
#define ACCESS_SHARED_USER "shared"

struct access;
struct grant_store;
struct http_client;
struct http_transfer;

struct access_spec {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;           // where grants are; NULL: there are none
    struct exchanged_tokens *exchanged;  // what was got for callers before; NULL: nothing is kept
    enum access_mode mode;
    const struct access_options *options;
    const char *tenant, *user;
    const char *server_url, *server_name;
    const char *probe;     // as in struct login_flow_spec; not copied
    char *const *issuers;  // domains that authorization servers may be at (N5); NULL: any
    void (*on_refreshed)(void *arg, const char *issuer,
                         const struct err *err);  // err: it failed; for the record, or NULL
    // H18: how many milliseconds a token request to this issuer has to wait; 0: it may go, and is counted. NULL: no time.
    int64_t (*wait_for_issuer)(void *arg, const char *issuer);
    void *arg;
    int64_t (*clock)(void);  // seconds since the epoch, for tests; NULL: the wall clock
};

struct access *access_new(const struct access_spec *spec);
void access_free(struct access *access);

// The value for the Authorization header; NULL: none. Changes when the version does.
const char *access_header(const struct access *access);
unsigned access_version(const struct access *access);

// Somebody waits for a token. on_ready comes once, from the loop, unless it is cancelled; err: there is none.
struct access_wait {
    void (*on_ready)(struct access_wait *wait, const struct err *err);
    void *arg;
    struct list node;  // its own
};

// Gets a token that is good now. Who waits already goes on waiting, for that.
void access_get(struct access *access, struct access_wait *wait);
// The server refused (401) the token of this version: gets another one.
void access_renew(struct access *access, unsigned version, struct access_wait *wait);
void access_cancel(struct access_wait *wait);
// The token must not be sent as it is: its time has run out, or others have changed what is in the store. access_get()
// gets the one that is good now.
bool access_stale(const struct access *access);

// The token a caller came with, and its end, for as long as the call lasts: to be exchanged when that is needed. It goes
// to the configured issuer or identity provider and nowhere else (H12). Each take has its drop; with the last one it is
// wiped.
void access_take_caller_token(struct access *access, struct span token, int64_t expires);
void access_drop_caller_token(struct access *access);

// The server does not take what it was shown, and nothing better could be got. For a short time access_get() gives the
// same only after another login: however often callers ask, neither the server nor the authorization server is asked.
void access_hold_back(struct access *access);

// The grant was given anew or taken back: what is held is let go of, and who waits gets what there is now.
void access_forget(struct access *access);
// To be called about once a second: looks whether what is held is still in the store, where another process may have
// deleted or replaced it. True, once, when it was found to be gone, and nothing is held any more, or to be from another
// login.
bool access_recheck(struct access *access);
// Which login the token is from: another number after another login, the same after a refresh. 0: not known, or the
// mode has no logins.
int64_t access_login(const struct access *access);
// The same, for a connection that begins now: that something was gone before does not concern it.
int64_t access_connect(struct access *access);

// What the server said when it refused (401, or 403 for want of scope), from the head of its answer; kept for a login.
void access_hear(struct access *access, struct http_transfer *transfer);
const struct oauth_challenge *access_challenge(const struct access *access);
// It wants more scope, and access_renew() will ask for that too: nobody has to be asked, nothing was configured, and it
// was not asked for before (A9).
bool access_can_widen(const struct access *access);
// The server refuses although all that could be tried was: says what is to be done about it.
void access_refused(const struct access *access, bool scope, struct err *err);
const char *access_scope(const struct access *access);  // asked for and granted so far; NULL: not known

// The grant of this owner that fits the server best, of a list; NULL: none. For commands.
const struct grant *access_pick(struct grant *const *grants, size_t count, const char *server_url);

#endif
