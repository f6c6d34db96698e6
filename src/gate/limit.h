// Limits on calls (limits.rates): which row counts a call, and the buckets behind the rows.
#ifndef GATE_LIMIT_H
#define GATE_LIMIT_H

#include "auth/identity.h"
#include "bucket.h"
#include "gate/config.h"

extern const struct option_table limit_rate_options;  // of struct config_rate

// Rows that nobody could mean: about a server that is not there, or about the same as an earlier row.
bool limit_check(const struct option_items *rates, const struct option_items *servers, const struct option_place *place,
                 struct err *err) MUST_CHECK;

// A call as the rows see it.
struct limit_call {
    const struct identity *identity;
    const char *server;
    struct span tool;  // at is NULL: it calls no tool
};

// Of the rows with this `per` that match the call, the one that counts it, or NULL. They are compared by tool, then
// by server, then by subject: naming one beats not naming one, a name beats a pattern, a user beats a role; of
// equal rows the earlier one counts.
const struct config_rate *limit_find(const struct option_items *rates, enum config_per per,
                                     const struct limit_call *call);

// The limits of one tenant. Another tenant's are another object, so neither can fill up the other's table.
struct limit;

struct limit *limit_new(const struct option_items *rates);  // NULL: there are none
void limit_free(struct limit *limit);

// What a call holds while it runs. Zeroed: nothing.
struct limit_hold {
    struct bucket *buckets[CONFIG_PERS];
    int64_t retry_ms;  // when it was refused: how long to wait
};

// Counts the call and takes its slots, all or nothing. False: it must wait; nothing is held.
bool limit_enter(struct limit *limit, const struct limit_call *call, int64_t now_ms, struct limit_hold *hold,
                 struct err *err) MUST_CHECK;
void limit_leave(struct limit_hold *hold);  // once more does nothing

#endif
