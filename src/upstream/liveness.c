// Owns noticing a server that hangs: it neither answers nor sends or takes a byte.
//
//   a request times out ─► another one, sent after that, times out too ─► a ping ─► no answer: the server is lost
//
// The server lives if it sends any byte in between (of an answer, a notification, stderr or a stream), or reads from a pipe that
// was full. The ping gets half of `timeout`, so a server that hangs is replaced within three timeouts. A slow server that answers
// pings is never replaced. A request that times out proves nothing while an older one still has time: many servers handle one
// request at a time. Guarded by tests/unit/upstream/recovery_test.c and tests/e2e/servers/recovery.test.mjs.
#include "liveness.h"
#include "base/log.h"
#include "request.h"
#include "transport.h"

static void send_ping(struct upstream *upstream);

static void on_ping(struct upstream_request *ping, const struct upstream_reply *reply)
{
    struct upstream *upstream = ping->arg;
    struct err err;
    if (upstream->state != UPSTREAM_READY || !reply->failure || reply->failure->code != ERR_UPSTREAM_TIMEOUT ||
        upstream->last_byte_ms > ping->sent_ms)
        return;
    if (upstream->paused) {  // its answer may be there, unread
        send_ping(upstream);
        return;
    }
    int64_t silent_ms = loop_now(upstream->spec.loop) - upstream->last_byte_ms;
    (void)err_set(
        &err, ERR_UPSTREAM_DIED,
        "server \"%s\" hangs and is replaced: a ping was not answered within %lld ms, and no byte came for %lld ms",
        upstream->server->name, (long long)ping->timeout_ms, (long long)silent_ms);
    transport_lose(upstream, &err);
}

static void send_ping(struct upstream *upstream)
{
    int64_t patience_ms = upstream->server->timeout_ms / 2;
    upstream->ping =
        (struct upstream_request){.on_reply = on_ping, .arg = upstream, .timeout_ms = patience_ms ? patience_ms : 1};
    log_info("server does not answer, sending a ping", LOG_STR("server", upstream->server->name));
    upstream_request_reserve(upstream, &upstream->ping);
    upstream_request_send(&upstream->ping, "ping", (struct span){0});
}

void liveness_on_idle(struct upstream *upstream)
{
    if (upstream->state == UPSTREAM_READY && !upstream->ping.upstream)
        send_ping(upstream);
}

// True if the server may be silent because it works on an older request, which may take longer (tool_timeouts).
static bool is_at_work(const struct upstream *upstream, const struct upstream_request *request)
{
    void *value;
    for (size_t at = 0; map_next(&upstream->in_flight, &at, NULL, &value);) {
        const struct upstream_request *other = value;
        if (other->id < request->id && other->timeout.due_ms > loop_now(upstream->spec.loop))
            return true;
    }
    return false;
}

void liveness_on_timeout(struct upstream *upstream, const struct upstream_request *request)
{
    if (upstream->state != UPSTREAM_READY || upstream->ping.upstream || request == &upstream->ping ||
        upstream->last_byte_ms > request->sent_ms || is_at_work(upstream, request))
        return;
    bool first = !upstream->timed_out_ms || upstream->last_byte_ms > upstream->timed_out_ms;
    if (first)
        upstream->timed_out_ms = loop_now(upstream->spec.loop);
    else if (request->sent_ms >= upstream->timed_out_ms)
        send_ping(upstream);
}
