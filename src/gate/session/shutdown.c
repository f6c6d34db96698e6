// Owns the states of a shutdown: open, closing, closed down. It is complete when all calls, sessions and servers have ended.
#include "base/check.h"
#include "gate/session/state.h"

void shutdown_set_state(struct gate *gate, enum gate_state state)
{
    CHECK(state == gate->state + 1);
    gate->state = state;
}

void shutdown_settle(struct gate *gate)
{
    if (gate->state != GATE_CLOSED_DOWN || gate->links_closing || gate->links.count || !list_empty(&gate->retired) ||
        !list_empty(&gate->calls) || !gate->on_done)
        return;
    void (*on_done)(void *) = gate->on_done;
    gate->on_done = NULL;
    on_done(gate->done_arg);
}
