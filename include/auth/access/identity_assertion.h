// Telling a server who calls: a short-lived JWT, signed by the gateway, in a header of each request.
//
// It says what the gateway found out, never what the caller showed: the caller's own token stays here. Calls carry the
// roles of the credential they came with; what a connection does for itself (handshake, lists) is done in the name of
// its user and claims no roles, since sessions of one user with different roles may share it.
#ifndef AUTH_ACCESS_IDENTITY_ASSERTION_H
#define AUTH_ACCESS_IDENTITY_ASSERTION_H

#include "auth/caller/identity.h"
#include "auth/login/access_options.h"
#include "base/err.h"

// The keys of all servers, read once, and the document (RFC 7517) with their public parts. Outlives the assertions. Options
// are known by their address.
struct assertion_keys;
struct assertion_key;

struct assertion_keys *assertion_keys_new(void);
struct assertion_keys *assertion_keys_ref(struct assertion_keys *keys);
void assertion_keys_unref(struct assertion_keys *keys);
void assertion_keys_add(struct assertion_keys *keys, const struct assertion_options *options);
const struct assertion_key *assertion_keys_find(const struct assertion_keys *keys,
                                                const struct assertion_options *options);
struct span assertion_keys_document(const struct assertion_keys *keys);  // empty: there are none

struct identity_assertion_spec {
    const struct assertion_options *options;
    const struct assertion_key *key;
    const char *issuer;  // the gateway's public URL
    const char *server_url;
    const struct identity *owner;  // whose connection it is
};

struct identity_assertion;

struct identity_assertion *identity_assertion_new(const struct identity_assertion_spec *spec);
void identity_assertion_free(struct identity_assertion *assertion);
const char *identity_assertion_header(const struct identity_assertion *assertion);  // its name
// For a request of `who` (NULL: the connection's own), at a time in seconds; good until the next call. Kept for half its
// life. NULL: nobody has proven who calls, or it cannot be signed, and the error says why.
const char *identity_assertion_text(struct identity_assertion *assertion, const struct identity *who, int64_t now,
                                    struct err *err);

#endif
