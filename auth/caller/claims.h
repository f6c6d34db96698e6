// What the claims of a verified token mean to the gateway: roles, scopes and the tenant.
#ifndef AUTH_CALLER_CLAIMS_H
#define AUTH_CALLER_CLAIMS_H

#include "auth/caller/identity.h"
#include "auth/jose/jwt.h"
#include "base/option.h"

#define CLAIMS_VALUES_MAX 512  // role values in one token

// A JSON pointer (RFC 6901) into objects; NULL if nothing is there.
const json_t *claims_find(const struct jwt_claims *claims, const char *pointer);
bool claims_pointer_check(const char *pointer, struct err *err) MUST_CHECK;

struct claims_role_rules {
    char *const *claims;         // JSON pointers besides `scope` and `scp`; NULL at the end, or NULL
    struct option_pairs values;  // value → role; what is not listed gives no role
};

// Adds the roles, each once. A claim of the wrong type or too many values is an error: roles are never cut off
// silently, since policies deny by role too. A claim the issuer moved elsewhere (`_claim_names`: group overage)
// counts as missing; the identity knows.
bool claims_add_roles(const struct jwt_claims *claims, const struct claims_role_rules *rules, struct identity *into,
                      struct err *err) MUST_CHECK;
// All of the scopes are in `scope` or `scp`; the caller asks for all of them at once if not.
bool claims_have_scopes(const struct jwt_claims *claims, char *const *scopes);
// The fixed tenant if no claim is mapped; otherwise the claim's text, and NULL with an error if it has none.
const char *claims_tenant(const struct jwt_claims *claims, const char *pointer, const char *fixed,
                          struct err *err) MUST_CHECK;

#endif
