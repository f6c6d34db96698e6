// Renewing a registration whose secret ends (RFC 7592): the client stays the same, and so do the grants it was given.
#ifndef AUTH_OAUTH_RENEW_H
#define AUTH_OAUTH_RENEW_H

#include "auth/grant/store.h"
#include "auth/login/fetch.h"

// Zero it, set on_done and arg. on_done comes once for each start, from the loop, not after a release.
struct login_renewal {
    void (*on_done)(struct login_renewal *renewal);
    void *arg;
    // What came.
    struct registration *registration;  // as it is stored now; NULL: it is not renewed, and err says why
    struct err err;
    bool claimed;  // G13: it was ours to try
    // its own
    struct grant_store *store;
    struct http_client *http;
    struct address_policy *policy;
    const char *ca_file;
    struct registration *old;
    struct grant_request claim, save;
    struct login_fetch fetch;
    struct arena arena;
};

// G8: a secret is of no use in its last minute.
bool login_renewal_due(const struct registration *registration, int64_t now);
// There is a place for it, at the origin of the issuer.
bool login_renewal_possible(const struct registration *registration);
void login_renewal_start(struct login_renewal *renewal, struct grant_store *store, struct http_client *http,
                         struct address_policy *policy, const char *ca_file, const struct registration *registration);
void login_renewal_release(struct login_renewal *renewal);

#endif
