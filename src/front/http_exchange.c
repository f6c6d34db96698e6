// Owns waiting: an exchange (one HTTP request and its answer) is suspended until there is something for its caller.
#include "face.h"

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
