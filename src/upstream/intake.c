// Owns the budget hold of a server's messages while they are read, and the wait for an exhausted budget.
//
// Bytes are counted before they are kept. If the budget is exhausted, the transport stops reading and keeps the rest of the last
// block; so a connection that waits has at most one block that is not counted.
#include "intake.h"
#include "base/log.h"
#include "receive.h"

static void on_room(struct budget_hold *hold)
{
    struct intake *intake = hold->arg;
    intake->on_room(intake->arg);
}

void intake_open(struct intake *intake, struct upstream *upstream, struct budget *memory, void (*on_room_given)(void *),
                 void *arg)
{
    *intake = (struct intake){.upstream = upstream, .on_room = on_room_given, .arg = arg};
    intake->held.on_room = on_room;
    intake->held.arg = intake;
    if (memory)
        budget_open(&intake->held, memory);
}

bool intake_waits(const struct intake *intake) { return intake->held.wanted > 0; }

// Takes at most the maximum of one message: a longer message is dropped, so it need not wait.
bool intake_cover(struct intake *intake, size_t bytes)
{
    const struct budget *full;
    size_t max = intake->upstream->spec.max_message, needed = bytes < max ? bytes : max, taken = intake->held.bytes;
    if (needed <= taken || budget_await(&intake->held, needed - taken, &full))
        return true;
    if (!intake->told)
        log_info("reading from a server paused: memory limit reached",
                 LOG_STR("server", intake->upstream->server->name), LOG_STR("limit", full->option),
                 LOG_INT("held", (int64_t)full->used));
    intake->told = true;
    return false;
}

void intake_keep(struct intake *intake, size_t bytes)
{
    if (bytes < intake->held.bytes)
        budget_shrink(&intake->held, intake->held.bytes - bytes);
}

void intake_hand_over(struct intake *intake, struct blob *blob)
{
    blob_hold(blob, &intake->held, blob->len < intake->held.bytes ? blob->len : intake->held.bytes);
}

void intake_deliver(struct intake *intake, struct span text, struct blob *owner, struct upstream_request *origin)
{
    struct upstream *upstream = intake->upstream;
    upstream->taken = &intake->held;
    receive_message(upstream, text, owner, origin);
    upstream->taken = NULL;
}

void intake_close(struct intake *intake) { budget_close(&intake->held); }
