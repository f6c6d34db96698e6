// A registration of the gateway as a client at an authorization server, its secret included. Immutable, counted.
#ifndef AUTH_REGISTRATION_H
#define AUTH_REGISTRATION_H

#include "base/buf.h"
#include "base/err.h"
#include "base/secret.h"

struct registration_key {
    const char *tenant;
    const char *issuer;
    const char *redirect;  // its redirect URI
};

// The contents of a registration (RFC 7591). NULL means unknown; a time of 0 means never.
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
    int64_t suspect_at;  // when the client was refused or a login with it abandoned: the next login registers a new one
    char *previous_id;   // the previous client, with which the grants that were issued to it are still refreshed
    struct secret previous_secret;
    int64_t learned;  // the kinds of addresses that registration_uri may have (loop/address.h)
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
// The secret of the current or the previous client. NULL if the client is another one or does not have a secret.
const struct secret *registration_secret(const struct registration *registration, const char *client_id);

#endif
