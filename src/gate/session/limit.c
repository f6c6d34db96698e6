// Owns the limits on calls: the row of limits.rates that counts a call, and the slots that calls hold.
//
// A row has one bucket or, with `per` identity, one for each identity. A call is counted by at most one row of each `per`. So a server
// may have a limit for the whole tenant and another for each identity, and the rows alone determine which of them apply (limit_find(),
// with its truth table in tests/unit/gate/session/limit_test.c).
#include "base/glob.h"
#include "base/mem.h"
#include "base/option_compare.h"
#include "room.h"
#include <inttypes.h>
#include <stdlib.h>

#define BUCKETS_MAX 10000
#define SLOT_RETRY_MS 1000  // a guess, because the end of a call in flight is unknown

// ---- selecting the row ----------------------------------------------------------------------

static bool matches(const struct config_rate *rate, const struct limit_call *call)
{
    return (!rate->server || strcmp(rate->server, call->server) == 0) &&
           (!rate->tool || (call->tool.at && glob_match(rate->tool, call->tool))) &&
           (!rate->subject || identity_is(call->identity, rate->subject));
}

// Tool, server and subject as the digits of a number: 2 for a name, 1 for a pattern or role, 0 for no selector.
static int specificity(const struct config_rate *rate)
{
    int tool = !rate->tool ? 0 : glob_is_literal(rate->tool) ? 2 : 1;
    int server = rate->server ? 2 : 0;
    int subject = !rate->subject ? 0 : strncmp(rate->subject, "user:", 5) == 0 ? 2 : 1;
    return tool * 100 + server * 10 + subject;
}

const struct config_rate *limit_find(const struct option_items *rates, enum config_per per,
                                     const struct limit_call *call)
{
    const struct config_rate *at = rates->at, *best = NULL;
    for (size_t i = 0; i < rates->count; i++)
        if (at[i].per == (int)per && matches(&at[i], call) && (!best || specificity(&at[i]) > specificity(best)))
            best = &at[i];
    return best;
}

// ---- counting -------------------------------------------------------------------------------

struct limit {
    unsigned refs;
    const struct option_items *rates;
    struct bucket_table table;
    struct buf key;  // scratch space for key_of()
};

struct limit *limit_new(const struct option_items *rates)
{
    if (!rates->count)
        return NULL;
    struct limit *limit = mem_new(struct limit);
    limit->refs = 1;
    limit->rates = rates;
    bucket_table_init(&limit->table, BUCKETS_MAX);
    return limit;
}

struct limit *limit_renew(struct limit *limit, const struct option_items *rates)
{
    if (!limit || !option_compare_items_equal(&config_rates_options, limit->rates, rates))
        return limit_new(rates);
    limit->rates = rates;
    limit->refs++;
    return limit;
}

void limit_unref(struct limit *limit)
{
    if (!limit || --limit->refs)
        return;
    bucket_table_release(&limit->table);
    buf_release(&limit->key);
    free(limit);
}

// The key of the row's bucket: "row", or "row\0provider\0subject".
static struct span key_of(struct limit *limit, size_t row, const struct config_rate *rate, const struct identity *who)
{
    buf_clear(&limit->key);
    buf_put(&limit->key, (const char *)&row, sizeof row);
    if (rate->per == CONFIG_PER_IDENTITY) {
        buf_put_text(&limit->key, who->provider);
        buf_put_char(&limit->key, '\0');
        buf_put_text(&limit->key, who->subject);
    }
    return buf_span(&limit->key);
}

static bool refuse(struct limit_hold *hold, int64_t retry_ms, struct err *err, const char *what, int64_t max,
                   size_t row)
{
    if (retry_ms > hold->retry_ms)
        hold->retry_ms = retry_ms;
    return err_set(err, ERR_LIMITED, "limits/rates/%zu: %s (at most %" PRId64 ")", row, what, max);
}

// Takes a slot of the row's bucket, if its rate and its number of calls in flight allow this call.
static bool hold_one(struct limit *limit, const struct config_rate *rate, const struct limit_call *call, int64_t now_ms,
                     struct limit_hold *hold, struct err *err)
{
    size_t row = (size_t)(rate - (const struct config_rate *)limit->rates->at);
    struct bucket_rate pace = {rate->calls, rate->window_ms, rate->burst};
    struct bucket *bucket = bucket_hold(&limit->table, key_of(limit, row, rate, call->identity), &pace, now_ms);
    if (!bucket)
        return refuse(hold, SLOT_RETRY_MS, err, "too many callers at once", BUCKETS_MAX, row);
    hold->buckets[rate->per] = bucket;
    int64_t wait = bucket_wait(bucket, now_ms);
    if (wait)
        return refuse(hold, wait, err, "too many calls in the window", rate->calls, row);
    if (rate->concurrent && bucket_held(bucket) > rate->concurrent)
        return refuse(hold, SLOT_RETRY_MS, err, "too many calls in flight", rate->concurrent, row);
    return true;
}

bool limit_enter(struct limit *limit, const struct limit_call *call, int64_t now_ms, struct limit_hold *hold,
                 struct err *err)
{
    bool room = true;
    *hold = (struct limit_hold){.limit = limit};
    limit->refs++;
    for (int per = 0; per < CONFIG_PERS; per++) {
        const struct config_rate *rate = limit_find(limit->rates, (enum config_per)per, call);
        if (rate)
            room = hold_one(limit, rate, call, now_ms, hold, err) && room;
    }
    if (!room) {
        limit_leave(hold);
        return false;
    }
    for (int per = 0; per < CONFIG_PERS; per++)
        if (hold->buckets[per])
            bucket_take(hold->buckets[per]);
    return true;
}

void limit_leave(struct limit_hold *hold)
{
    for (int per = 0; per < CONFIG_PERS; per++) {
        if (hold->buckets[per])
            bucket_leave(hold->buckets[per]);
        hold->buckets[per] = NULL;
    }
    limit_unref(hold->limit);
    hold->limit = NULL;
}
