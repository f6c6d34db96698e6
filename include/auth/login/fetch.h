// One HTTP exchange of OAuth: bounded in bytes and time, no redirects, no proxy, addresses judged as it connects.
#ifndef AUTH_OAUTH_FETCH_H
#define AUTH_OAUTH_FETCH_H

#include "auth/oauth/oauth.h"
#include "loop/address.h"
#include "loop/http_client.h"

// Zero it, set on_done and arg. on_done comes once for each start, from the loop, not after a cancel.
struct login_fetch {
    void (*on_done)(struct login_fetch *fetch);
    void *arg;
    // What came; valid until the next start.
    bool failed;  // there is no whole answer; err says why
    struct err err;
    int status;
    int64_t retry_after_ms;  // 0: it does not say
    struct buf body, type, location;
    struct arena arena;  // of the challenge
    struct oauth_challenge challenge;
    // its own
    struct address_policy *policy;
    struct http_target *target;
    struct http_transfer *transfer;
};

// For endpoints that a login found before: where that login's server was (`learned`) they may be, too. If that was not
// kept (0), what the text of the server's own URL says.
struct address_policy login_fetch_policy(int64_t learned, const char *url, char *const *allowed);

// A form for an endpoint of an authorization server, as one of its clients.
struct login_form {
    const char *url;
    const struct oauth_client *client;  // adds its proof to the form, or to the headers
    const char *audience;               // of a signed proof
    int64_t now;                        // seconds since the epoch
    int64_t timeout_ms;
    struct address_policy *policy;
    const char *ca_file;
};

// False: the proof cannot be made, and nothing was sent. The form is wiped and released in any case.
bool login_fetch_post(struct login_fetch *fetch, struct http_client *http, const struct login_form *to,
                      struct buf *form, struct err *err) MUST_CHECK;
void login_fetch_cancel(struct login_fetch *fetch);
void login_fetch_release(struct login_fetch *fetch);

#endif
