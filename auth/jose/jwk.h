// Keys and signature algorithms for jwt.c: choosing a key, and checking a signature.
#ifndef JWK_H
#define JWK_H

#include "auth/jose/jwt.h"
#include <openssl/evp.h>

// Key types and curves, as bits, so that an algorithm can list those it works with.
enum jwk_kind {
    JWK_RSA = 1 << 0,
    JWK_P256 = 1 << 1,
    JWK_P384 = 1 << 2,
    JWK_P521 = 1 << 3,
    JWK_ED25519 = 1 << 4,
    JWK_ED448 = 1 << 5,
};

struct jwk_algorithm {
    const char *name;
    enum jwt_algorithm bit;
    unsigned kinds;
    const EVP_MD *(*digest)(void);  // NULL: the signature scheme includes the digest
    bool pss;
};

struct jwk {
    EVP_PKEY *key;
    char *kid;  // NULL: absent
    enum jwk_kind kind;
    // The algorithms that the key may verify, according to its kind, `alg`, `use` and `key_ops`. 0 for a key that is
    // not for signatures; it stays in the set so that its kid is known.
    unsigned algorithms;
};

const struct jwk_algorithm *jwk_algorithm_find(const char *name);  // exact case

// The only key that fits, or NULL. *unknown: no key has that kid, or `keys` is NULL because the set was not fetched
// yet.
const struct jwk *jwks_select(const struct jwks *keys, const char *kid, const struct jwk_algorithm *algorithm,
                              bool *unknown, struct err *err) MUST_CHECK;
// Imports one key of a set. False: *problem has the reason, or is NULL for an unsupported type or curve, which is not a
// mistake.
bool jwk_import(const json_t *member, struct jwk *out, const char **problem) MUST_CHECK;
void jwk_release(struct jwk *jwk);
bool jwk_verify(const struct jwk *jwk, const struct jwk_algorithm *algorithm, struct span text,
                struct span signature) MUST_CHECK;

// Parses an untrusted JSON object: no duplicate keys, bounded depth, every number as a real. Errors give the position
// and do not quote the text.
json_t *jwk_json(struct span text, const char *what, enum err_code code, struct err *err) MUST_CHECK;

#endif
