// The keys of one issuer, fetched on the loop and kept fresh.
#ifndef AUTH_JWKS_SOURCE_H
#define AUTH_JWKS_SOURCE_H

#include "auth/caller/provider.h"
#include "auth/jose/jwt.h"
#include "loop/http_client.h"
#include "loop/loop.h"

struct jwks_source;

// Begins to fetch. Without a jwks_uri the URL of the keys is taken from the issuer's metadata. on_change is called for new keys.
struct jwks_source *jwks_source_new(const struct provider_world *world, const char *issuer, const char *jwks_uri,
                                    void (*on_change)(void *arg), void *arg);
void jwks_source_free(struct jwks_source *source);
const struct jwks *jwks_source_keys(const struct jwks_source *source);  // NULL: not fetched yet, or too old
// A token names a key that the source does not have. True if a fetch is under way that may bring it.
bool jwks_source_miss(struct jwks_source *source, struct span kid);
bool jwks_source_fetching(const struct jwks_source *source);
bool jwks_source_failing(const struct jwks_source *source);  // the last fetch failed
void jwks_source_health(const struct jwks_source *source, struct provider_health *out);
void jwks_source_wait(struct jwks_source *source, struct provider_wait *wait);
// True for https, and for http on loopback. A URL on loopback may only come from a document on loopback, so that a
// remote issuer cannot make the gateway send requests to its own host. At the start both are the same URL.
bool jwks_source_may_fetch(const char *url, const char *on_word_of);

#endif
