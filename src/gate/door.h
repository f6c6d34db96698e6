// The door: addresses that failed to authenticate too often are not heard for a while.
#ifndef GATE_DOOR_H
#define GATE_DOOR_H

#include "auth/credentials.h"
#include "base/buf.h"
#include "bucket.h"
#include "gate/config.h"

struct door {
    struct bucket_rate rate;
    struct bucket_table failures;  // address -> bucket of what it may still get wrong
};

void door_init(struct door *door, const struct config_limits *limits);
void door_release(struct door *door);

// A credential from there was refused.
void door_failed(struct door *door, const struct peer *peer, int64_t now_ms);
// How long until somebody there is heard again; 0: now.
int64_t door_wait(const struct door *door, const struct peer *peer, int64_t now_ms);
// The address as one key, and as people write it; nothing for who has none.
void door_put_address(const struct peer *peer, struct buf *out);
void door_put_address_text(const struct peer *peer, struct buf *out);

#endif
