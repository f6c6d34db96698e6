// One HTTP exchange of OAuth: bounded in bytes and time, without redirects or a proxy; addresses are checked on
// connecting.
#ifndef AUTH_OAUTH_FETCH_H
#define AUTH_OAUTH_FETCH_H

#include "auth/oauth/oauth.h"
#include "loop/address.h"
#include "loop/http_client.h"

// Zero it, set on_done and arg. on_done is called once for each start, from the loop, and not after a cancel.
struct login_fetch {
    void (*on_done)(struct login_fetch *fetch);
    void *arg;
    // The answer; valid until the next start.
    bool failed;  // no complete answer arrived; see err
    struct err err;
    int status;
    int64_t retry_after_ms;  // 0: not given
    struct buf body, type, location;
    struct arena arena;  // of the challenge
    struct oauth_challenge challenge;
    // private
    struct address_policy *policy;
    struct http_target *target;
    struct http_transfer *transfer;
};

// The address policy for endpoints that an earlier login has found. They may have the kinds of addresses that the
// login's server had (`learned`). If these are unknown (0), the host in `url` decides.
struct address_policy login_fetch_policy(int64_t learned, const char *url, char *const *allowed);

// A form for an endpoint of an authorization server, as one of its clients.
struct login_form {
    const char *url;
    const struct oauth_client *client;  // its authentication is added to the form or to the headers
    const char *audience;               // of a signed client assertion
    int64_t now;                        // seconds since the epoch
    int64_t timeout_ms;
    struct address_policy *policy;
    const char *ca_file;
};

// Returns false, without sending anything, if the client cannot be authenticated (such as an unreadable key). The form
// is wiped and released in any case.
bool login_fetch_post(struct login_fetch *fetch, struct http_client *http, const struct login_form *to,
                      struct buf *form, struct err *err) MUST_CHECK;
void login_fetch_cancel(struct login_fetch *fetch);
void login_fetch_release(struct login_fetch *fetch);

#endif
