// A cache of verified tokens.
#ifndef AUTH_CALLER_JWT_CACHE_H
#define AUTH_CALLER_JWT_CACHE_H

#include "auth/caller/identity.h"

// The identity that a verified token proved, by the token's SHA-256. There is one cache for each set of rules; clear it
// when the keys change. Only accepted tokens are kept, and an entry is not used after its token has expired.
struct jwt_cache;

struct jwt_cache *jwt_cache_new(size_t room);
void jwt_cache_free(struct jwt_cache *cache);
void jwt_cache_clear(struct jwt_cache *cache);
// The identity (the caller refs it), or NULL.
const struct identity *jwt_cache_find(struct jwt_cache *cache, struct span token, int64_t now);
// identity->expires must be the `exp` of the claims; an identity without expiry is not kept.
void jwt_cache_put(struct jwt_cache *cache, struct span token, const struct identity *identity);

#endif
