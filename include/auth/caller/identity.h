// An authenticated caller and its proof. Counted and immutable, except for the text that the audit log caches in it.
#ifndef AUTH_IDENTITY_H
#define AUTH_IDENTITY_H

#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum identity_proof { IDENTITY_NONE, IDENTITY_ANONYMOUS, IDENTITY_BEARER, IDENTITY_FORWARDED, IDENTITY_JWT };

struct identity {
    unsigned refs;
    enum identity_proof proof;
    char *tenant;
    char *provider;
    char *subject;  // unique within the provider
    char **roles;
    size_t role_count;
    bool roles_left_out;  // the issuer has more of them elsewhere (group overage)
    char *token_id;       // names the credential, for the audit log; NULL if it does not have a name
    int64_t expires;      // seconds since the epoch; 0: never
    char *audit_text;     // cached: its part of an audit row
};

// A new identity with copies of the texts and no roles.
struct identity *identity_new(enum identity_proof proof, const char *tenant, const char *provider, const char *subject);
void identity_add_role(struct identity *identity, struct span role);  // only before it is shared
struct identity *identity_ref(const struct identity *identity);
void identity_unref(const struct identity *identity);

// Compares tenant, provider and subject; the proof may differ.
bool identity_same(const struct identity *a, const struct identity *b);
// Does a principal of policies and limits match: user:PROVIDER:NAME, role:ROLE, anonymous, authenticated or *?
bool identity_is(const struct identity *identity, const char *principal);
const char *identity_proof_text(enum identity_proof proof);

#endif
