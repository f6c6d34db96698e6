// Owns the limits on calls: the rows of limits.rates, which of them counts a call, and what calls hold.
//
// A row is one bucket, or with `per` identity one for each identity; a call is counted by at most one row of each
// `per`. So "the tenant together" and "each of them" can both be said about the same server, and nothing else
// needs to be known to tell which row it was (limit_find(), with its truth table in tests/unit/gate_limit_test.c).
#include "limit.h"
#include "base/glob.h"
#include "base/mem.h"
#include <inttypes.h>
#include <stdlib.h>

#define BUCKETS_MAX 10000
#define SLOT_RETRY_MS 1000  // nobody knows when a call in flight ends
#define DAY_MS (24 * 3600 * 1000LL)

// ---- rows -----------------------------------------------------------------------------------

static bool check_rate(void *object, const struct option_place *place, struct err *err)
{
    struct config_rate *rate = object;
    const char *subject = rate->subject;
    if (!rate->calls && !rate->concurrent)
        return err_set(err, ERR_CONFIG, "%s: %s: give \"calls\", \"concurrent\" or both", place->file, place->path);
    if (rate->burst && !rate->calls)
        return err_set(err, ERR_CONFIG, "%s: %s/burst: only with \"calls\"", place->file, place->path);
    if (rate->tool && (!*rate->tool || !glob_valid(rate->tool)))
        return err_set(err, ERR_CONFIG, "%s: %s/tool: a name, in which * stands for anything and \\* for a star",
                       place->file, place->path);
    if (subject && strncmp(subject, "role:", 5) != 0 &&
        (strncmp(subject, "user:", 5) != 0 || !strchr(subject + 5, ':')))
        return err_set(err, ERR_CONFIG, "%s: %s/subject: must be user:PROVIDER:NAME or role:ROLE", place->file,
                       place->path);
    if (!rate->burst)
        rate->burst = rate->calls;
    return true;
}

static const char *const pers[] = {"tenant", "identity", NULL};  // enum config_per

#define AT(member) offsetof(struct config_rate, member)
static const struct option rows[] = {
    {.name = "server",
     .type = OPTION_STRING,
     .offset = AT(server),
     .help = "Only calls to this server; all servers if absent."},
    {.name = "tool",
     .type = OPTION_STRING,
     .offset = AT(tool),
     .help = "Only calls of this tool, by the server's own name for it; `*` stands for anything."},
    {.name = "subject",
     .type = OPTION_STRING,
     .offset = AT(subject),
     .help = "Only calls of `user:PROVIDER:NAME` or of those with `role:ROLE`."},
    {.name = "per",
     .type = OPTION_ENUM,
     .offset = AT(per),
     .fallback = "\"tenant\"",
     .choices = pers,
     .help = "Whose calls are counted together: those of all callers, or those of each identity."},
    {.name = "calls",
     .type = OPTION_INT,
     .offset = AT(calls),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .help = "So many calls in a `window`; 0: any number."},
    {.name = "window",
     .type = OPTION_DURATION,
     .offset = AT(window_ms),
     .fallback = "60",
     .min = 1,
     .max = DAY_MS,
     .help = "The time for `calls`."},
    {.name = "burst",
     .type = OPTION_INT,
     .offset = AT(burst),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .help = "How many of them may come at once after a pause; 0: all of them."},
    {.name = "concurrent",
     .type = OPTION_INT,
     .offset = AT(concurrent),
     .fallback = "0",
     .min = 0,
     .max = 1000000,
     .help = "So many calls in flight; 0: any number."},
    {0},
};
#undef AT

const struct option_table limit_rate_options = {"A limit on calls (limits.rates[])", sizeof(struct config_rate), rows,
                                                check_rate};

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool has_server(const struct option_items *servers, const char *name)
{
    const struct server *at = servers->at;
    for (size_t i = 0; i < servers->count; i++)
        if (strcmp(at[i].name, name) == 0)
            return true;
    return false;
}

bool limit_check(const struct option_items *rates, const struct option_items *servers, const struct option_place *place,
                 struct err *err)
{
    const struct config_rate *at = rates->at;
    for (size_t i = 0; i < rates->count; i++) {
        if (at[i].server && !has_server(servers, at[i].server))
            return err_set(err, ERR_CONFIG, "%s: %s/limits/rates/%zu/server: there is no server \"%s\"", place->file,
                           place->path, i, at[i].server);
        for (size_t k = 0; k < i; k++)
            if (at[i].per == at[k].per && same_text(at[i].server, at[k].server) && same_text(at[i].tool, at[k].tool) &&
                same_text(at[i].subject, at[k].subject))
                return err_set(err, ERR_CONFIG, "%s: %s/limits/rates/%zu: the same calls as in rates/%zu", place->file,
                               place->path, i, k);
    }
    return true;
}

// ---- which row ------------------------------------------------------------------------------

static bool matches(const struct config_rate *rate, const struct limit_call *call)
{
    return (!rate->server || strcmp(rate->server, call->server) == 0) &&
           (!rate->tool || (call->tool.at && glob_match(rate->tool, call->tool))) &&
           (!rate->subject || identity_is(call->identity, rate->subject));
}

// Tool, server and subject as the digits of a number: 2 for a name, 1 for something wider, 0 for anything.
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
    const struct option_items *rates;
    struct bucket_table table;
    struct buf key;  // room to make one in
};

struct limit *limit_new(const struct option_items *rates)
{
    if (!rates->count)
        return NULL;
    struct limit *limit = mem_new(struct limit);
    limit->rates = rates;
    bucket_table_init(&limit->table, BUCKETS_MAX);
    return limit;
}

void limit_free(struct limit *limit)
{
    if (!limit)
        return;
    bucket_table_release(&limit->table);
    buf_release(&limit->key);
    free(limit);
}

// Which bucket of the row: "row", or "row\0provider\0subject".
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

static bool refuse(struct limit_hold *hold, int64_t retry_ms, struct err *err, const char *what, size_t row)
{
    if (retry_ms > hold->retry_ms)
        hold->retry_ms = retry_ms;
    return err_set(err, ERR_LIMITED, "limits/rates/%zu: %s", row, what);
}

// Takes a slot of the row's bucket and looks whether there is room for this call.
static bool hold_one(struct limit *limit, const struct config_rate *rate, const struct limit_call *call, int64_t now_ms,
                     struct limit_hold *hold, struct err *err)
{
    size_t row = (size_t)(rate - (const struct config_rate *)limit->rates->at);
    struct bucket_rate pace = {rate->calls, rate->window_ms, rate->burst};
    struct bucket *bucket = bucket_hold(&limit->table, key_of(limit, row, rate, call->identity), &pace, now_ms);
    if (!bucket)
        return refuse(hold, SLOT_RETRY_MS, err, "too many callers at once", row);
    hold->buckets[rate->per] = bucket;
    int64_t wait = bucket_wait(bucket, now_ms);
    if (wait)
        return refuse(hold, wait, err, "too many calls", row);
    if (rate->concurrent && bucket_held(bucket) > rate->concurrent)
        return refuse(hold, SLOT_RETRY_MS, err, "too many calls in flight", row);
    return true;
}

bool limit_enter(struct limit *limit, const struct limit_call *call, int64_t now_ms, struct limit_hold *hold,
                 struct err *err)
{
    bool room = true;
    *hold = (struct limit_hold){0};
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
}
