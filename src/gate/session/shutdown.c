// Owns when the gate has stopped: its calls, sessions and servers are gone.
#include "gate/session/state.h"

void shutdown_settle(struct gate *gate)
{
    if (!gate->closed_down || gate->links_closing || gate->links.count || !list_empty(&gate->calls) || !gate->on_done)
        return;
    void (*on_done)(void *) = gate->on_done;
    gate->on_done = NULL;
    on_done(gate->done_arg);
}
