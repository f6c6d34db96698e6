// Owns choosing the grant for a server from those of a user.
#include "auth/access/access.h"
#include "auth/oauth/oauth.h"

static bool is_newer(const struct grant *a, const struct grant *b)
{
    return a->is.obtained_at != b->is.obtained_at ? a->is.obtained_at > b->is.obtained_at
                                                  : a->generation > b->generation;
}

const struct grant *access_pick(struct grant *const *grants, size_t count, const char *server_url)
{
    const struct grant *best = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct grant *grant = grants[i];
        bool fits = *grant->resource ? oauth_resource_covers(grant->resource, server_url)
                                     : oauth_url_same_origin(grant->issuer, server_url);
        if (!fits)
            continue;
        bool alive = !grant->is.dead_at, best_alive = best && !best->is.dead_at;
        size_t length = strlen(grant->resource), best_length = best ? strlen(best->resource) : 0;
        if (!best || alive > best_alive ||
            (alive == best_alive && (length > best_length || (length == best_length && is_newer(grant, best)))))
            best = grant;
    }
    return best;
}
