// Owns the state of an exchange (one HTTP request and its answer), and its suspension while it waits for its answer.
//
//            body is complete              answer of the gate or of a page
//   BODY ───────────────────► WAITING ─────────────────────────────────────► ANSWERED
//     │ │                        │
//     │ │ rejected or answered   └── stream of the gate ──► STREAMING
//     │ │ without the body
//     │ └──► ANSWERED
//     └── rejected in the middle of the body ──► SKIPPING (the rest of it) ── end of body ──► ANSWERED
//
// http_exchange_set_state() is the only function that changes the state, and checks the transition.
#include "base/check.h"
#include "face.h"

#define TO(state) (1U << EXCHANGE_##state)

static const unsigned allowed[] = {
    [EXCHANGE_BODY] = TO(SKIPPING) | TO(WAITING) | TO(ANSWERED),
    [EXCHANGE_SKIPPING] = TO(ANSWERED),
    [EXCHANGE_WAITING] = TO(ANSWERED) | TO(STREAMING),
    [EXCHANGE_ANSWERED] = 0,
    [EXCHANGE_STREAMING] = 0,
};

void http_exchange_set_state(struct http_exchange *exchange, enum http_exchange_state state)
{
    CHECK(allowed[exchange->state] & (1U << state));
    exchange->state = state;
}

void http_exchange_resume(struct http_exchange *exchange)
{
    struct shard *shard = exchange->caller->shard;
    if (exchange->suspended) {
        exchange->suspended = false;
        if (exchange->state == EXCHANGE_STREAMING)
            deadline_send(exchange->caller);
        shard_resume(shard, exchange->connection);
    } else if (list_linked(&exchange->node)) {
        list_remove(&exchange->node);
        shard_touch(shard);
    }
}

void http_exchange_suspend(struct http_exchange *exchange)
{
    exchange->suspended = true;
    deadline_none(exchange->caller);
    MHD_suspend_connection(exchange->connection);
}
