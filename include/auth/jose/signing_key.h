// Private keys: reading one from its file, and signing statements with it.
#ifndef AUTH_OAUTH_KEY_H
#define AUTH_OAUTH_KEY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

struct signing_key {
    const char *pem, *algorithm, *id;  // id may be NULL
};

// The text of a PEM file that only its owner may read; NULL with an error otherwise.
const char *signing_key_read(const char *path, struct arena *arena, struct err *err) MUST_CHECK;
// One that anybody may read.
const char *signing_key_read_public(const char *path, struct arena *arena, struct err *err) MUST_CHECK;
// RS256 to RS512, ES256 to ES512: no shared secret, and never "none".
bool signing_key_algorithm_valid(const char *algorithm);
// A JWT of these claims with a `jti` of its own.
bool signing_key_sign(const struct signing_key *key, json_t *claims, struct buf *out, struct err *err) MUST_CHECK;

#endif
