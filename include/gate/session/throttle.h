// The throttle: addresses that failed to authenticate too often are refused for a while.
#ifndef GATE_THROTTLE_H
#define GATE_THROTTLE_H

#include "auth/caller/credentials.h"
#include "base/bucket.h"
#include "config/config.h"

struct throttle {
    struct bucket_rate rate;
    struct bucket_table failures;  // address -> bucket of the failures that are left
};

void throttle_init(struct throttle *throttle, const struct config_limits *limits);
void throttle_configure(struct throttle *throttle, const struct config_limits *limits);  // earlier failures still count
void throttle_release(struct throttle *throttle);

// Counts a refused credential from this address.
void throttle_failed(struct throttle *throttle, const struct peer *peer, int64_t now_ms);
// How long the address stays throttled; 0: it is not throttled.
int64_t throttle_wait(const struct throttle *throttle, const struct peer *peer, int64_t now_ms);

#endif
