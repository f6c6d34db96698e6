// Owns the limit on failed authentication: the number of failures that each address has left.
//
// An address is an IPv4 address, or the first 64 bits of an IPv6 address, which one subscriber shares. Callers on a unix socket or a
// pipe have no address and are not throttled: file permissions control their access. A successful authentication does not change the
// count, so a valid credential cannot be used to reset it between wrong ones.
#include "gate/session/throttle.h"
#include "base/log.h"
#include <arpa/inet.h>

#define ADDRESSES_MAX 16384

void throttle_configure(struct throttle *throttle, const struct config_limits *limits)
{
    throttle->rate = (struct bucket_rate){limits->auth_failures, limits->auth_window_ms, limits->auth_failures};
}

void throttle_init(struct throttle *throttle, const struct config_limits *limits)
{
    throttle_configure(throttle, limits);
    bucket_table_init(&throttle->failures, ADDRESSES_MAX);
}

void throttle_release(struct throttle *throttle) { bucket_table_release(&throttle->failures); }

static struct span key_of(const struct peer_source *address)
{
    return span_make((const char *)address, sizeof *address);
}

static void tell(const struct peer_source *address, int64_t wait_ms)
{
    unsigned char whole[16] = {0};
    char text[INET6_ADDRSTRLEN] = "?";
    memcpy(whole, address->bytes, sizeof address->bytes);
    if (address->family != AF_UNSPEC)
        (void)inet_ntop(address->family, whole, text, sizeof text);
    log_warn("throttling address after failed authentications", LOG_STR("address", text), LOG_INT("for_ms", wait_ms));
}

void throttle_failed(struct throttle *throttle, const struct peer *peer, int64_t now_ms)
{
    struct peer_source address;
    struct bucket *bucket;
    if (!credentials_source(peer, &address) ||
        !(bucket = bucket_hold(&throttle->failures, key_of(&address), &throttle->rate, now_ms)))
        return;
    if (bucket_wait(bucket, now_ms) == 0) {
        bucket_take(bucket);
        int64_t wait = bucket_wait(bucket, now_ms);
        if (wait)
            tell(&address, wait);
    }
    bucket_leave(bucket);
}

int64_t throttle_wait(const struct throttle *throttle, const struct peer *peer, int64_t now_ms)
{
    struct peer_source address;
    struct bucket *bucket = throttle->failures.buckets.count && credentials_source(peer, &address)
                                ? bucket_find(&throttle->failures, key_of(&address))
                                : NULL;
    return bucket ? bucket_wait(bucket, now_ms) : 0;
}
