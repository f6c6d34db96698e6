// Identity assertions: a short-lived JWT, signed by the gateway, in a header of each request to a server.
//
// It contains the identity that the gateway established, and never the caller's own token. The assertion of a call has
// the roles of the caller's credential. Requests that a connection makes for itself (handshake, lists) are asserted for
// its user without roles, because sessions of one user with different roles may share the connection.
#ifndef AUTH_ACCESS_IDENTITY_ASSERTION_H
#define AUTH_ACCESS_IDENTITY_ASSERTION_H

#include "auth/caller/identity.h"
#include "auth/login/access_options.h"
#include "base/err.h"

// The keys of all servers, read once, and the document (RFC 7517) with their public parts. They must outlive the
// assertions. A key is found by the address of its options.
struct assertion_keys;
struct assertion_key;

struct assertion_keys *assertion_keys_new(void);
struct assertion_keys *assertion_keys_ref(struct assertion_keys *keys);
void assertion_keys_unref(struct assertion_keys *keys);
void assertion_keys_add(struct assertion_keys *keys, const struct assertion_options *options);
const struct assertion_key *assertion_keys_find(const struct assertion_keys *keys,
                                                const struct assertion_options *options);
struct span assertion_keys_document(const struct assertion_keys *keys);  // empty if no server has a key

struct identity_assertion_spec {
    const struct assertion_options *options;
    const struct assertion_key *key;
    const char *issuer;  // the gateway's public URL
    const char *server_url;
    const struct identity *owner;  // the user of the connection
};

struct identity_assertion;

struct identity_assertion *identity_assertion_new(const struct identity_assertion_spec *spec);
void identity_assertion_free(struct identity_assertion *assertion);
const char *identity_assertion_header(const struct identity_assertion *assertion);  // the name of the header
// The assertion for a request of `who` (NULL: of the connection itself), with the time in seconds; valid until the next
// call. An assertion is reused for half of its lifetime. Returns NULL and sets `err` if the caller is not
// authenticated, or if the assertion cannot be signed.
const char *identity_assertion_text(struct identity_assertion *assertion, const struct identity *who, int64_t now,
                                    struct err *err);

#endif
