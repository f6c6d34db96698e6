// Renewing a registration whose secret expires (RFC 7592): the client and its grants stay the same.
#ifndef AUTH_OAUTH_RENEW_H
#define AUTH_OAUTH_RENEW_H

#include "auth/grant/store.h"
#include "auth/login/fetch.h"

// Zero it, set on_done and arg. on_done is called once for each start, from the loop, and not after a release.
struct login_renewal {
    void (*on_done)(struct login_renewal *renewal);
    void *arg;
    // The result.
    struct registration *registration;  // the stored registration; NULL: it was not renewed, see err
    struct err err;
    bool claimed;  // G13: this renewal got the claim to register
    // private
    struct grant_store *store;
    struct http_client *http;
    struct address_policy *policy;
    const char *ca_file;
    struct registration *old;
    struct grant_request claim, save;
    struct login_fetch fetch;
    struct arena arena;
};

// G8: a secret is not used in its last minute.
bool login_renewal_due(const struct registration *registration, int64_t now);
// Reports whether the registration has a management URL at the origin of the issuer, and a token for it.
bool login_renewal_possible(const struct registration *registration);
void login_renewal_start(struct login_renewal *renewal, struct grant_store *store, struct http_client *http,
                         struct address_policy *policy, const char *ca_file, const struct registration *registration);
void login_renewal_release(struct login_renewal *renewal);

#endif
