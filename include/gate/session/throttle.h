// The throttle: addresses that failed to authenticate too often are refused for a while.
#ifndef GATE_THROTTLE_H
#define GATE_THROTTLE_H

#include "auth/caller/credentials.h"
#include "base/bucket.h"
#include "config/config.h"

struct throttle {
    struct bucket_rate rate;
    struct bucket_table failures;  // address -> bucket of what it may still get wrong
};

void throttle_init(struct throttle *throttle, const struct config_limits *limits);
void throttle_configure(struct throttle *throttle, const struct config_limits *limits);  // failures so far count on
void throttle_release(struct throttle *throttle);

// A credential from there was refused.
void throttle_failed(struct throttle *throttle, const struct peer *peer, int64_t now_ms);
// How long until another credential from there is looked at; 0: now.
int64_t throttle_wait(const struct throttle *throttle, const struct peer *peer, int64_t now_ms);

#endif
