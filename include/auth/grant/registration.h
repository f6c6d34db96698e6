// A registration of the gateway as a client at an authorization server, its secret included. Immutable, counted.
#ifndef AUTH_REGISTRATION_H
#define AUTH_REGISTRATION_H

#include "base/buf.h"
#include "base/err.h"
#include "base/secret.h"

struct registration_key {
    const char *tenant;
    const char *issuer;
    const char *redirect;  // the redirect URI it is for
};

// A registration at an authorization server (RFC 7591). NULL and 0: not known, never.
struct registration_fields {
    char *client_id;
    struct secret client_secret;
    int64_t secret_expires_at;
    int64_t issued_at;
    char *auth_method;
    struct secret registration_token;  // RFC 7592
    char *registration_uri;
    char *redirect_uris;  // separated by spaces
    char *scope;
    int64_t
        suspect_at;  // a login with it was abandoned, or it was refused, at this time: the next login makes a new one
    char *previous_id;  // the client that was there before: grants that were given to it are still refreshed with it
    struct secret previous_secret;
    int64_t learned;  // the kinds of addresses that it may be managed at (loop/address.h)
};

struct registration {
    unsigned refs;
    int64_t generation;
    char *tenant, *issuer, *redirect;
    struct registration_fields is;
};

struct registration *registration_new(const struct registration_key *key, struct registration_fields *fields);
struct registration *registration_ref(const struct registration *registration);
void registration_unref(const struct registration *registration);
void registration_fields_copy(const struct registration_fields *from, struct registration_fields *to);
// The secret of this client, which may be the one before; NULL: it has none, or is not known here.
const struct secret *registration_secret(const struct registration *registration, const char *client_id);

#endif
