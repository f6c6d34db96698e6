// One HTTP exchange of OAuth: bounded in bytes and time, no redirects, no proxy, addresses judged as it connects.
#ifndef AUTH_OAUTH_FETCH_H
#define AUTH_OAUTH_FETCH_H

#include "auth/address.h"
#include "auth/oauth.h"
#include "loop/http_client.h"

// Zero it, set on_done and arg. on_done comes once for each start, from the loop, not after a cancel.
struct oauth_fetch {
    void (*on_done)(struct oauth_fetch *fetch);
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

struct oauth_wish {
    const char *url;
    const char *type;           // Content-Type of a POST; NULL: GET
    bool put;                   // a PUT instead
    struct span body;           // wiped by whoever made it
    const char *authorization;  // NULL: none
    const char *accept;         // NULL: JSON
    const char *revision;       // MCP-Protocol-Version; NULL: none
    int64_t timeout_ms;
    struct address_policy *policy;
    const char *ca_file;  // authorities beside the system's; NULL: none
};

// For endpoints that a login found before: where that login's server was (`learned`) they may be, too. If that was not
// kept (0), what the text of the server's own URL says.
struct address_policy oauth_fetch_policy(int64_t learned, const char *url, char *const *allowed);

void oauth_fetch_start(struct oauth_fetch *fetch, struct http_client *http, const struct oauth_wish *wish);
void oauth_fetch_cancel(struct oauth_fetch *fetch);
void oauth_fetch_release(struct oauth_fetch *fetch);

#endif
