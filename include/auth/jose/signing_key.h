// Private keys: reading a key from its file, and signing JWTs with it.
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
// The text of a PEM file with a public key, which other users may read.
const char *signing_key_read_public(const char *path, struct arena *arena, struct err *err) MUST_CHECK;
// RS256 to RS512 and ES256 to ES512; not HS* and not "none".
bool signing_key_algorithm_valid(const char *algorithm);
// Appends a JWT of these claims, with a new `jti`.
bool signing_key_sign(const struct signing_key *key, json_t *claims, struct buf *out, struct err *err) MUST_CHECK;

#endif
