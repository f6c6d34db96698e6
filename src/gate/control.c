// Owns the operations on a running gateway: reports on its state, and changes that an operator makes.
//
// An operation answers from memory, or changes something in the same turn of the loop. Those that change something are rows of
// the audit log. Guarded by tests/e2e/operations/control.test.mjs.
#include "gate/control.h"
#include "health.h"
#include <unistd.h>

static json_int_t count_calls(const struct gate *gate)
{
    json_int_t count = 0;
    list_each(node, &gate->calls)
        count += list_entry(node, struct call, node)->message.kind == MESSAGE_REQUEST;
    return count;
}

json_t *gate_control_status(const struct gate *gate)
{
    json_t *tree = health_tree(gate, true);
    json_object_update_new(tree,
                           json_pack("{s:s,s:I,s:I,s:{s:I}}", "version", POSTERN_VERSION, "pid", (json_int_t)getpid(),
                                     "uptime_s", (json_int_t)((loop_now(gate->loop) - gate->started_ms) / 1000),
                                     "calls", "in_flight", count_calls(gate)));
    return tree;
}

// ---- what changes something -----------------------------------------------------------------

void gate_control_record(struct gate *gate, const struct gate_control_actor *actor, const char *operation,
                         const struct err *err)
{
    struct audit_record record = {.event = AUDIT_OPERATION,
                                  .provider = span_of(actor->provider),
                                  .proof = span_of(actor->provider),
                                  .subject = span_of(actor->subject),
                                  .peer = span_of(actor->from),
                                  .method = span_of(operation),
                                  .status = err ? AUDIT_ERROR : AUDIT_OK,
                                  .reason = err ? span_of(err->detail) : (struct span){0}};
    if (gate->audit)
        (void)audit_put(gate->audit, &record);
}
