// Tokens that name a key nobody has: which of them may make us fetch the keys again.
//
// One fetch a minute, whoever asks; and none for a kid that made one in the last five minutes and did not come with it,
// so that one stale token does not use up every minute.
#ifndef AUTH_JWKS_MISSES_H
#define AUTH_JWKS_MISSES_H

#include "base/secret.h"
#include "base/span.h"
#include <stdbool.h>
#include <stdint.h>

#define JWKS_MISSES_MAX 128
#define JWKS_MISSES_PAUSE_MS (60 * 1000)
#define JWKS_MISSES_KEEP_MS (300 * 1000)

// Zeroed: there were none.
struct jwks_misses {
    int64_t next_ms;  // no fetch before
    struct jwks_miss {
        unsigned char kid[SECRET_MAC_BYTES];  // its digest
        int64_t until_ms;
    } at[JWKS_MISSES_MAX];
    size_t next;
};

// May this kid cause a fetch now? If so, that is noted: before the fetch, so that a storm of them causes one.
bool jwks_misses_may_fetch(struct jwks_misses *misses, struct span kid, int64_t now_ms);

#endif
