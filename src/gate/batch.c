// Owns batches: a call whose message is an array becomes one call for each element, and waits for them.
#include "batch.h"
#include "phase.h"
#include "reading.h"
#include <inttypes.h>
#include <stdio.h>

static struct call *part_new(struct call *batch, size_t at)
{
    struct call *part = call_new(batch->gate);
    part->parent = batch;
    part->op = ARRIVAL_MESSAGE;
    part->identity = identity_ref(batch->identity);
    part->tenant = tenant_ref(batch->tenant);
    part->pipe = batch->pipe;
    part->started_us = batch->started_us;
    snprintf(part->request_id, sizeof part->request_id, "%s", batch->request_id);
    list_append(&batch->gate->calls, &part->node);
    call_join_session(part, batch->session);
    reading_take_part(batch, at, part);
    if (part->err.code)
        ask_on_invalid(part->session, &part->message);
    bool over = part->err.code || !memory_hold_call(part) || call_comes_too_late(part);
    call_set_phase(part, over ? PHASE_SHAPE : PHASE_ROUTE);
    return part;
}

// The parts of a batch start in the phase `route`. This call waits for them and gathers their answers.
enum phase_result batch_split(struct call *call)
{
    size_t count = reading_count(call);
    if (call->session->revision != REVISION_2025_03_26 && call->session->revision != REVISION_2024_11_05)
        return call_fail(call, ERR_INVALID_REQUEST, "batches are not supported after revision 2025-03-26");
    // The decoded method is compared, so that no spelling can initialize an open session again.
    if (reading_has(call, METHOD_INITIALIZE))
        return call_fail(call, ERR_INVALID_REQUEST, "initialize must not be in a batch");
    if (count == 0 || (int64_t)count > call->gate->config->limits.batch)
        return call_fail(call, ERR_INVALID_REQUEST, "the batch has %zu messages (limits.batch = %" PRId64 ")", count,
                         call->gate->config->limits.batch);
    call_set_batch(call, BATCH_SPLIT);
    call->parts_left = count + 1;
    for (size_t i = 0; i < count; i++)
        call->gate->runner->run(part_new(call, i));
    if (--call->parts_left == 0)
        return PHASE_REPLY;
    return PHASE_WAIT;
}
