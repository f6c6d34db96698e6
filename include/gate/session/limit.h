// Limits on calls (limits.rates): which row counts a call, and the buckets behind the rows.
#ifndef GATE_LIMIT_H
#define GATE_LIMIT_H

#include "auth/caller/identity.h"
#include "base/bucket.h"
#include "config/config.h"

// A call as the rows see it.
struct limit_call {
    const struct identity *identity;
    const char *server;
    struct span tool;  // at is NULL: not a call of a tool
};

// The limits of one tenant. Each tenant has its own table of buckets, so that no tenant can fill up the table of another.
struct limit;

// The slots that a call holds while it runs. Zeroed: no slot.
struct limit_hold {
    struct limit *limit;
    struct bucket *buckets[CONFIG_PERS];
    int64_t retry_ms;  // after a refusal: how long to wait
};

// Counts the call and takes all of its slots. False: the call is refused, and nothing was counted or taken.
bool limit_enter(struct limit *limit, const struct limit_call *call, int64_t now_ms, struct limit_hold *hold,
                 struct err *err) MUST_CHECK;
void limit_leave(struct limit_hold *hold);  // no effect if repeated

#endif
