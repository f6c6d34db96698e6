// Telling a server who calls: a short-lived JWT, signed by the gateway, in a header of each request.
//
// It says what the gateway found out, never what the caller showed: the caller's own token stays here. Calls carry the
// roles of the credential they came with; what a connection does for itself (handshake, lists) is done in the name of
// its user and claims no roles, since sessions of one user with different roles may share it.
#ifndef AUTH_ASSERTION_H
#define AUTH_ASSERTION_H

#include "auth/identity.h"
#include "base/err.h"
#include "base/option.h"

// `auth.assertion` of a server; none without a key_file.
struct assertion_options {
    char *key_file, *algorithm, *key_id;
    struct option_pairs other_keys;  // id → file: published, and not signed with
    char *header;
    char *audience;  // NULL: the server's URL
    int64_t lifetime_ms;
};

extern const struct option_table assertion_option_table;

// The keys of all servers, read once, and the document (RFC 7517) with their public parts. Outlives the assertions. Options
// are known by their address.
struct assertion_keys;
struct assertion_key;

struct assertion_keys *assertion_keys_new(void);
void assertion_keys_free(struct assertion_keys *keys);
void assertion_keys_add(struct assertion_keys *keys, const struct assertion_options *options);
const struct assertion_key *assertion_keys_find(const struct assertion_keys *keys,
                                                const struct assertion_options *options);
struct span assertion_keys_document(const struct assertion_keys *keys);  // empty: there are none

struct assertion_spec {
    const struct assertion_options *options;
    const struct assertion_key *key;
    const char *issuer;  // the gateway's public URL
    const char *server_url;
    const struct identity *owner;  // whose connection it is
};

struct assertion;

struct assertion *assertion_new(const struct assertion_spec *spec);
void assertion_free(struct assertion *assertion);
const char *assertion_header(const struct assertion *assertion);  // its name
// For a request of `who` (NULL: the connection's own), at a time in seconds; good until the next call. Kept for half its
// life. NULL: nobody has proven who calls, or it cannot be signed, and the error says why.
const char *assertion_text(struct assertion *assertion, const struct identity *who, int64_t now, struct err *err);

#endif
