// Decides whether a token whose key is unknown may cause a fetch of the keys.
//
// At most one fetch a minute is allowed. A kid that caused a fetch without success does not cause another for five
// minutes, so that one stale token does not use up every minute.
#ifndef AUTH_JWKS_MISSES_H
#define AUTH_JWKS_MISSES_H

#include "base/secret.h"
#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

#define JWKS_MISSES_MAX 128
#define JWKS_MISSES_PAUSE_MS (60 * 1000)
#define JWKS_MISSES_KEEP_MS (300 * 1000)

// Initialized with zeros.
struct jwks_misses {
    int64_t next_ms;  // the next fetch is allowed at this time
    struct jwks_miss {
        unsigned char kid[SECRET_MAC_BYTES];  // digest of the kid
        int64_t until_ms;
    } at[JWKS_MISSES_MAX];
    size_t next;
};

// May this kid cause a fetch now? If so, the fetch is recorded here, before it begins, so that concurrent misses cause one.
bool jwks_misses_may_fetch(struct jwks_misses *misses, struct span kid, int64_t now_ms);

#endif
