// Owns abandoning a request that waits for the gate: the gate drops it, and its caller gets an error.
#include "page.h"

void abandon_request(struct caller *caller, const struct err *err)
{
    struct http_exchange *exchange = caller->exchange;
    if (!exchange || exchange->state != EXCHANGE_WAITING)
        return;
    gate_gone(exchange->face->gate, &exchange->arrival);
    page_gone(exchange);
    http_answer_set_error(exchange, err);
    http_exchange_resume(exchange);
}
