// Owns the decision whether an unknown kid is worth a fetch of the keys.
#include "jwks_misses.h"

static bool is_known(const struct jwks_misses *misses, const struct jwks_miss *miss, int64_t now_ms)
{
    for (size_t i = 0; i < JWKS_MISSES_MAX; i++)
        if (misses->at[i].until_ms > now_ms && memcmp(misses->at[i].kid, miss->kid, sizeof miss->kid) == 0)
            return true;
    return false;
}

bool jwks_misses_may_fetch(struct jwks_misses *misses, struct span kid, int64_t now_ms)
{
    struct jwks_miss miss = {.until_ms = now_ms + JWKS_MISSES_KEEP_MS};
    secret_digest(kid, miss.kid);
    if (now_ms < misses->next_ms || is_known(misses, &miss, now_ms))
        return false;
    misses->next_ms = now_ms + JWKS_MISSES_PAUSE_MS;
    misses->at[misses->next++ % JWKS_MISSES_MAX] = miss;
    return true;
}
