// JSON Web Tokens as a resource server sees them: key sets and verification.
//
// Pure: no IO, no clock, no log. A provider fetches the key set and passes the time. Signatures are checked with
// OpenSSL's EVP. Only asymmetric algorithms exist here, so a public key can never serve as an HMAC secret, and "none"
// is an unknown name like any other. A refusal sets ERR_UNAUTHENTICATED with a detail that says what is wrong and never
// quotes the token.
#ifndef AUTH_JOSE_JWT_H
#define AUTH_JOSE_JWT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JWT_TOKEN_MAX ((size_t)16 << 10)
#define JWT_SKEW_MAX 300
#define JWT_SUBJECT_MAX 256
#define JWKS_TEXT_MAX ((size_t)256 << 10)
#define JWKS_KEYS_MAX 64

// ---- keys -----------------------------------------------------------------------------------

// One issuer's public keys: immutable.
struct jwks;

// A document that is too large, not JSON or not a key set is an error. A key that is broken, or of a type or curve that
// is not supported, is skipped. The set may turn out empty: then no token is accepted.
struct jwks *jwks_parse(struct span text, struct err *err) MUST_CHECK;
void jwks_free(struct jwks *keys);
size_t jwks_count(const struct jwks *keys);
size_t jwks_skipped(const struct jwks *keys);
// The lifetime of a set in seconds: max-age of its Cache-Control header (NULL: absent), clamped to 5 minutes to a day.
int64_t jwks_lifetime(const char *cache_control);
const char *jwks_problem(const struct jwks *keys);  // of the first broken key, for the operator; NULL: no key is broken

// ---- verification ---------------------------------------------------------------------------

enum jwt_algorithm {
    JWT_RS256 = 1 << 0,
    JWT_RS384 = 1 << 1,
    JWT_RS512 = 1 << 2,
    JWT_PS256 = 1 << 3,
    JWT_PS384 = 1 << 4,
    JWT_PS512 = 1 << 5,
    JWT_ES256 = 1 << 6,
    JWT_ES384 = 1 << 7,
    JWT_ES512 = 1 << 8,
    JWT_EDDSA = 1 << 9,
};
#define JWT_ALGORITHMS_DEFAULT ((unsigned)(JWT_RS256 | JWT_PS256 | JWT_ES256 | JWT_EDDSA))

// The requirements for the tokens of one issuer. Zeroed rules accept no token.
struct jwt_rules {
    const char *issuer;            // `iss`, byte for byte
    char *const *audiences;        // NULL at the end; one of them must be in `aud`, byte for byte
    char *const *required_claims;  // NULL at the end, or NULL: top-level claims that must be present
    unsigned algorithms;           // see jwt_algorithms()
    int64_t skew;                  // seconds that clocks may differ, 0 to JWT_SKEW_MAX
    bool require_at_jwt;           // `typ` must be at+jwt (RFC 9068)
};

// The set of these algorithms; a NULL list gives the default. Names are case-sensitive; HS* and none are unknown here.
bool jwt_algorithms(char *const *names, unsigned *set, struct err *err) MUST_CHECK;
// Refuses, at startup, rules that could never accept a token or would not check the audience.
bool jwt_rules_check(const struct jwt_rules *rules, struct err *err) MUST_CHECK;

// A parsed token. It is not verified: use it only to choose the rules to verify it with.
struct jwt {
    json_t *header, *payload;
    struct span text;       // the signed part; a view of the token
    struct buf signature;   // decoded
    const char *algorithm;  // as in the header
    const char *kid;        // NULL: absent
    const char *issuer;     // NULL: absent, or not a string
};

bool jwt_parse(struct span token, struct jwt *out, struct err *err) MUST_CHECK;
void jwt_release(struct jwt *jwt);

enum jwt_outcome {
    JWT_REJECTED,
    JWT_UNKNOWN_KEY,  // no key of the set has its kid, and all other checks passed: a newer set may help
    JWT_ACCEPTED,
};

struct jwt_claims {
    json_t *tree;
    const char *subject;   // NULL: absent
    const char *token_id;  // `jti`; NULL: absent
    int64_t expires;       // the first second at which the token is refused: `exp` plus the skew
};

// `now` is in seconds since the epoch. `out` is filled if the token is accepted, and zeroed otherwise.
enum jwt_outcome jwt_verify(const struct jwt_rules *rules, const struct jwks *keys, struct span token, int64_t now,
                            struct jwt_claims *out, struct err *err) MUST_CHECK;
void jwt_claims_release(struct jwt_claims *claims);

// Generates keys, and verifies valid and forged tokens. Fails if any outcome is wrong. Run it at startup.
bool jwt_self_test(struct err *err) MUST_CHECK;

#endif
