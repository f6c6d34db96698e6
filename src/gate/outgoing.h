// The params of a caller's message, on their way to a server.
#ifndef GATE_OUTGOING_H
#define GATE_OUTGOING_H

#include "call.h"

// A value in the params, and what the server gets in its place.
struct outgoing_swap {
    struct span old;   // at is NULL: nothing is replaced
    struct span with;  // raw JSON, or
    bool text;         // characters
};

// The id of the task that the message says it belongs to, if it does. False: it is not the caller's, and the message
// must not reach the server.
bool outgoing_task(struct call *call, const struct link *link, struct outgoing_swap *swap) MUST_CHECK;
void outgoing_put(const struct call *call, struct outgoing_swap *swaps, size_t count, struct pieces *out);
// Passes a notification on, with one value swapped (or none). False: as above, and nothing was sent.
bool outgoing_notify(struct call *call, const struct link *link, struct span old, struct span with) MUST_CHECK;

#endif
