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
    struct span tool;  // at is NULL: it calls no tool
};

// The limits of one tenant. Another tenant's are another object, so neither can fill up the other's table.
struct limit;

// What a call holds while it runs. Zeroed: nothing.
struct limit_hold {
    struct limit *limit;
    struct bucket *buckets[CONFIG_PERS];
    int64_t retry_ms;  // when it was refused: how long to wait
};

// Counts the call and takes its slots, all or nothing. False: it must wait; nothing is held.
bool limit_enter(struct limit *limit, const struct limit_call *call, int64_t now_ms, struct limit_hold *hold,
                 struct err *err) MUST_CHECK;
void limit_leave(struct limit_hold *hold);  // once more does nothing

#endif
