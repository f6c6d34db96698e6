// Reads roles, scopes and the tenant from the claims of a verified token.
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
    struct option_pairs values;  // value → role; values that are not listed are ignored
};

// Adds the roles, each once. A claim of the wrong type or too many values are an error: roles are never dropped
// silently, since policies deny by role, too. A claim that the issuer keeps elsewhere (`_claim_names`: group overage)
// counts as missing, and the identity has `roles_left_out`.
bool claims_add_roles(const struct jwt_claims *claims, const struct claims_role_rules *rules, struct identity *into,
                      struct err *err) MUST_CHECK;
// True if `scope` or `scp` contains all of the scopes.
bool claims_have_scopes(const struct jwt_claims *claims, char *const *scopes);
// The fixed tenant if no claim is mapped, otherwise the text of the claim; NULL with an error if the token lacks it.
const char *claims_tenant(const struct jwt_claims *claims, const char *pointer, const char *fixed,
                          struct err *err) MUST_CHECK;

#endif
