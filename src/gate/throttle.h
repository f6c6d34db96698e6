// The throttle: addresses that failed to authenticate too often are refused for a while.
#ifndef GATE_THROTTLE_H
#define GATE_THROTTLE_H

#include "auth/credentials.h"
#include "base/buf.h"
#include "bucket.h"
#include "gate/config.h"

struct throttle {
    struct bucket_rate rate;
    struct bucket_table failures;  // address -> bucket of what it may still get wrong
};

void throttle_init(struct throttle *throttle, const struct config_limits *limits);
void throttle_release(struct throttle *throttle);

// A credential from there was refused.
void throttle_failed(struct throttle *throttle, const struct peer *peer, int64_t now_ms);
// How long until another credential from there is looked at; 0: now.
int64_t throttle_wait(const struct throttle *throttle, const struct peer *peer, int64_t now_ms);
// The address as a key, and as text. A caller without an address adds nothing to the key.
void throttle_put_address(const struct peer *peer, struct buf *out);
void throttle_put_address_text(const struct peer *peer, struct buf *out);

#endif
