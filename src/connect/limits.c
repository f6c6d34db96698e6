// Owns the rate limits of the connect flow (H18, A9): links opened, callbacks, token requests to one issuer, and
// requests for more scope.
#include "auth/grant/grant.h"
#include "state.h"
#include <stdlib.h>

#define BUCKETS_MAX 16384
#define FULL_TABLE_MS 1000

// Browsers that are not authenticated are distinguished by address only: unbound_rate.
static const struct bucket_rate open_rate = {10, 60000, 10}, callback_rate = {30, 60000, 30},
                                issuer_rate = {5, 1000, 5}, unbound_rate = {120, 60000, 120},
                                scope_rate = {CONNECT_OFFER_SCOPE_REQUESTS, 24 * 3600 * 1000,
                                              CONNECT_OFFER_SCOPE_REQUESTS};

void connect_limits_init(struct connect_limits *limits)
{
    bucket_table_init(&limits->opened, BUCKETS_MAX);
    bucket_table_init(&limits->callbacks, BUCKETS_MAX);
    bucket_table_init(&limits->issuers, BUCKETS_MAX);
    bucket_table_init(&limits->scopes, BUCKETS_MAX);
}

void connect_limits_release(struct connect_limits *limits)
{
    bucket_table_release(&limits->opened);
    bucket_table_release(&limits->callbacks);
    bucket_table_release(&limits->issuers);
    bucket_table_release(&limits->scopes);
}

static int64_t take(struct bucket_table *table, const struct bucket_rate *rate, struct span key, int64_t now)
{
    int64_t wait = FULL_TABLE_MS;
    struct bucket *bucket = bucket_hold(table, key, rate, now);
    if (bucket && (wait = bucket_wait(bucket, now)) == 0)
        bucket_take(bucket);
    if (bucket)
        bucket_leave(bucket);
    return wait;
}

int64_t connect_limits_open(struct connect *connect, const struct identity *user)
{
    struct buf key = {0};
    char *name = grant_user(user);
    buf_printf(&key, "%s/%s", user->tenant, name);
    int64_t wait = take(&connect->limits.opened, &open_rate, buf_span(&key), loop_now(connect->parts.loop));
    free(name);
    buf_release(&key);
    return wait;
}

static void put_address(const struct connect_request *request, struct buf *key)
{
    const struct peer *peer = request->credentials.peer;
    if (peer && peer->address.ss_family != AF_UNIX)
        credentials_put_source(peer, key);
}

int64_t connect_limits_open_unbound(const struct connect_request *request)
{
    struct connect *connect = request->connect;
    struct buf key = {0};
    buf_put_char(&key, '\0');  // not a user's key: names of tenants do not begin with it
    put_address(request, &key);
    int64_t wait = take(&connect->limits.opened, &unbound_rate, buf_span(&key), loop_now(connect->parts.loop));
    buf_release(&key);
    return wait;
}

// By address; behind a proxy that authenticated itself, by the user it forwards.
int64_t connect_limits_callback(const struct connect_request *request)
{
    struct connect *connect = request->connect;
    const struct identity *user = request->identity;
    struct buf key = {0};
    if (user && provider_chain_relays(request->credentials.chain, &request->credentials))
        buf_printf(&key, "u%s/%s/%s", user->tenant, user->provider, user->subject);
    else
        put_address(request, &key);
    int64_t wait = take(&connect->limits.callbacks, &callback_rate, buf_span(&key), loop_now(connect->parts.loop));
    buf_release(&key);
    return wait;
}

int64_t connect_limits_wait_for_issuer(struct connect *connect, const char *issuer)
{
    return take(&connect->limits.issuers, &issuer_rate, span_of(issuer), loop_now(connect->parts.loop));
}

bool connect_limits_scope_left(const struct connect *connect, struct span operation)
{
    struct bucket *bucket = bucket_find(&connect->limits.scopes, operation);
    return !bucket || bucket_wait(bucket, loop_now(connect->parts.loop)) == 0;
}

void connect_limits_scope_count(struct connect *connect, struct span operation)
{
    (void)take(&connect->limits.scopes, &scope_rate, operation, loop_now(connect->parts.loop));
}
