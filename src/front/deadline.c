// Owns the deadlines of connections: the time limits for headers, a body and silence, and the minimum rate of bytes.
//
// A connection has one deadline at a time, and a timer that is due at the deadline or earlier. Moving a deadline to a later
// time does not touch the timer, which compares the times when it is due. So a call sets no timer, and an idle stream, which
// has no deadline, costs nothing.
//
// A request body, an answer and the messages of a stream must move at limits.min_rate on average over each window. The first
// window is not judged where the caller reads. The bytes that a caller has read are those that TCP acknowledged; on a unix
// socket any change of the send queue counts. The small body of an unauthenticated caller has a deadline, but no minimum rate.
#include "base/log.h"
#include "face.h"
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define WINDOW_MS 30000  // or half of limits.body_timeout, if that is shorter

static void set(struct caller *caller, enum deadline_kind kind, int64_t due_ms)
{
    struct deadline *deadline = &caller->deadline;
    struct loop *loop = caller->face->loop;
    deadline->kind = kind;
    deadline->due_ms = due_ms;
    if (!deadline->timer.slot || deadline->timer.due_ms > due_ms)
        loop_timer_set(loop, &deadline->timer, due_ms - loop_now(loop));
}

static bool has_long(const struct caller *caller)
{
    const struct config_limits *limits = caller->face->config.limits;
    return limits->body_timeout_ms <= limits->unauthenticated_body_timeout_ms || caller_is_authenticated(caller);
}

static int64_t body_ms(const struct caller *caller)
{
    const struct config_limits *limits = caller->face->config.limits;
    return has_long(caller) ? limits->body_timeout_ms : limits->unauthenticated_body_timeout_ms;
}

static void open_window(struct caller *caller, enum deadline_kind kind)
{
    int64_t half = body_ms(caller) / 2, now = loop_now(caller->face->loop), end = caller->deadline.end_ms;
    int64_t due = now + (half < WINDOW_MS ? half : WINDOW_MS);
    caller->deadline.began_ms = now;
    set(caller, kind, kind == DEADLINE_BODY && (end < due || !has_long(caller)) ? end : due);
}

void deadline_header(struct caller *caller)
{
    int64_t due = loop_now(caller->face->loop) + caller->face->config.limits->header_timeout_ms;
    if (caller->deadline.kind == DEADLINE_NONE || due < caller->deadline.due_ms)
        set(caller, DEADLINE_TIME, due);
}

void deadline_idle(struct caller *caller)
{
    set(caller, DEADLINE_TIME, loop_now(caller->face->loop) + caller->face->config.limits->idle_timeout_ms);
}

void deadline_body(struct caller *caller)
{
    caller->deadline.end_ms = loop_now(caller->face->loop) + body_ms(caller);
    caller->deadline.moved = caller->exchange->received;
    open_window(caller, DEADLINE_BODY);
}

void deadline_send(struct caller *caller)
{
    caller->deadline.sampled = false;
    open_window(caller, DEADLINE_SEND);
}

void deadline_none(struct caller *caller) { caller->deadline.kind = DEADLINE_NONE; }

// ---- rates ----------------------------------------------------------------------------------

static uint64_t needed(const struct caller *caller)
{
    int64_t past = loop_now(caller->face->loop) - caller->deadline.began_ms;
    int64_t bytes = caller->face->config.limits->min_rate * past / 1000;
    return bytes > 1 ? (uint64_t)bytes : 1;
}

static bool sends(struct caller *caller)
{
    uint64_t before = caller->deadline.moved;
    caller->deadline.moved = caller->exchange->received;
    return caller->exchange->received - before >= needed(caller);
}

static bool reads(struct caller *caller)
{
    struct deadline *deadline = &caller->deadline;
    struct tcp_info tcp = {0};
    socklen_t len = sizeof tcp;
    int queued = 0;
    if (ioctl(caller->fd, SIOCOUTQ, &queued) < 0 || queued == 0)
        return true;  // the caller has read everything
    bool counted = getsockopt(caller->fd, IPPROTO_TCP, TCP_INFO, &tcp, &len) == 0 && tcp.tcpi_bytes_acked;
    uint64_t now = counted ? (uint64_t)tcp.tcpi_bytes_acked : (uint64_t)queued, before = deadline->moved;
    bool first = !deadline->sampled;
    deadline->moved = now;
    deadline->sampled = true;
    return first || (counted ? now - before >= needed(caller) : now != before);
}

// The bytes that the log reports: received of the body, waiting on the stream, or of the whole answer.
static size_t bytes_of(const struct http_exchange *exchange)
{
    if (exchange->state < EXCHANGE_WAITING)
        return exchange->received;
    if (exchange->stream)
        return exchange->out.len - exchange->sent + (exchange->large ? exchange->large->len : 0) +
               stream_waiting(exchange->stream);
    return exchange->answer_bytes;
}

static void cut_off(struct caller *caller, const char *why, const char *option)
{
    const struct http_exchange *exchange = caller->exchange;
    const struct identity *who = exchange ? exchange->arrival.who : NULL;
    log_info(why, LOG_STR("url", caller->face->listener.url), LOG_STR("tenant", who ? who->tenant : "-"),
             LOG_STR("subject", who ? who->subject : "-"), LOG_INT("bytes", exchange ? bytes_of(exchange) : 0),
             LOG_STR("option", option));
    caller_close(caller);
}

static void on_due(struct loop_timer *timer)
{
    struct caller *caller = timer->arg;
    struct deadline *deadline = &caller->deadline;
    struct loop *loop = caller->face->loop;
    if (deadline->kind != DEADLINE_NONE && loop_now(loop) < deadline->due_ms) {
        loop_timer_set(loop, timer, deadline->due_ms - loop_now(loop));
        return;
    }
    switch (deadline->kind) {
    case DEADLINE_NONE: break;
    case DEADLINE_TIME: caller_close(caller); break;
    case DEADLINE_BODY:
        if (loop_now(loop) >= deadline->end_ms)
            cut_off(caller, "caller cut off: request body took too long",
                    has_long(caller) ? "limits.body_timeout" : "limits.unauthenticated_body_timeout");
        else if (!sends(caller))
            cut_off(caller, "caller cut off: request body sent too slowly", "limits.min_rate");
        else
            open_window(caller, DEADLINE_BODY);
        break;
    case DEADLINE_SEND:
        if (!reads(caller))
            cut_off(caller, "caller cut off: answer read too slowly", "limits.min_rate");
        else
            open_window(caller, DEADLINE_SEND);
        break;
    }
}

void deadline_start(struct caller *caller)
{
    caller->deadline.timer = (struct loop_timer){.on_due = on_due, .arg = caller, .name = "caller deadline"};
    deadline_header(caller);
}

void deadline_stop(struct caller *caller)
{
    deadline_none(caller);
    loop_timer_stop(caller->face->loop, &caller->deadline.timer);
}
