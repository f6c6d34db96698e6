// Owns requests to a server: the state and the timeout of each, and its single on_reply.
//
//                      the server starts            READY
//   OVER ─► RESERVED ───────────────────► WAITING ─────────► SENT ─► OVER: on_reply, or a cancel
//              │ │ │                        ▲  ▲  session lost │ │
//              │ │ │                        │  └───────────────┘ │ refused: 401, or 403 for its scope
//              │ │ │   the token expired    │ another token      ▼
//              │ │ └────────────────────────┼────────────────► REFUSED ─► SENT: initialize
//              │ └──────────────────────────┼────────────────► SENT
//              └────────────────────────────┼────────────────► FAILING ─► OVER
//                                                                 ▲ from every state: its connection is lost
//
// Invariants: a request is in `in_flight` while it is SENT, in `waiting`, `refused` or `failing` (or among those that fail with
// their connection) in the states of that name, and nowhere else; set_state() is the only function that moves it, and checks the
// transition. on_reply never runs inside upstream_request_send() (tests/unit/upstream/stdio_test.c).
#include "request.h"
#include "base/check.h"
#include "message.h"
#include "transport.h"

#define TO(state) (1U << UPSTREAM_REQUEST_##state)

static const unsigned allowed[] = {
    [UPSTREAM_REQUEST_OVER] = TO(RESERVED),
    [UPSTREAM_REQUEST_RESERVED] = TO(RESERVED) | TO(WAITING) | TO(SENT) | TO(REFUSED) | TO(FAILING) | TO(OVER),
    [UPSTREAM_REQUEST_WAITING] = TO(SENT) | TO(FAILING) | TO(OVER),
    [UPSTREAM_REQUEST_SENT] = TO(WAITING) | TO(REFUSED) | TO(FAILING) | TO(OVER),
    [UPSTREAM_REQUEST_REFUSED] = TO(WAITING) | TO(SENT) | TO(FAILING) | TO(OVER),
    [UPSTREAM_REQUEST_FAILING] = TO(OVER),
};

// `list`: the list of the new state; NULL: requests in that state are in no list.
static void set_state(struct upstream_request *request, enum upstream_request_state state, struct list *list)
{
    struct map *in_flight = &request->upstream->in_flight;
    CHECK(allowed[request->state] & (1U << state));
    if (request->state == UPSTREAM_REQUEST_SENT)
        map_remove(in_flight, map_key_u64(&request->id));
    list_remove(&request->node);
    request->state = state;
    if (list)
        list_append(list, &request->node);
    else if (state == UPSTREAM_REQUEST_SENT)
        map_put(in_flight, map_key_u64(&request->id), request);
}

static struct upstream_request *first_of(struct list *list)
{
    return list_entry(list->next, struct upstream_request, node);
}

// ---- ending ---------------------------------------------------------------------------------

void upstream_request_drop(struct upstream_request *request)
{
    struct upstream *upstream = request->upstream;
    if (!upstream)
        return;
    set_state(request, UPSTREAM_REQUEST_OVER, NULL);
    if (list_empty(&upstream->refused))  // no request needs another token any more
        access_cancel(&upstream->renewal);
    loop_timer_stop(upstream->spec.loop, &request->timeout);
    if (request->transfer)
        upstream->transport->forget(upstream, request);
    request->transfer = NULL;
    blob_unref(request->text);
    request->text = NULL;
    request->upstream = NULL;
}

void upstream_request_finish(struct upstream_request *request, const struct upstream_reply *reply)
{
    upstream_request_drop(request);
    request->on_reply(request, reply);
}

void upstream_request_fail(struct upstream_request *request, const struct err *err)
{
    upstream_request_finish(request, &(struct upstream_reply){.failure = err});
}

void upstream_request_fail_all(struct list *requests, const struct err *err)
{
    while (!list_empty(requests))
        upstream_request_fail(first_of(requests), err);
}

void upstream_request_doom_sent(struct upstream *upstream, struct list *doomed)
{
    void *value;
    list_init(doomed);
    while (!list_empty(&upstream->refused))
        set_state(first_of(&upstream->refused), UPSTREAM_REQUEST_FAILING, doomed);
    for (size_t at = 0; map_next(&upstream->in_flight, &at, NULL, &value);)
        set_state(value, UPSTREAM_REQUEST_FAILING, doomed);
    map_release(&upstream->in_flight);
}

void upstream_request_doom_waiting(struct upstream *upstream, struct list *doomed)
{
    list_init(doomed);
    while (!list_empty(&upstream->waiting))
        set_state(first_of(&upstream->waiting), UPSTREAM_REQUEST_FAILING, doomed);
}

void upstream_request_fail_later(struct upstream_request *request)
{
    struct upstream *upstream = request->upstream;
    loop_timer_stop(upstream->spec.loop, &request->timeout);
    set_state(request, UPSTREAM_REQUEST_FAILING, &upstream->failing);
    loop_task_put(upstream->spec.loop, &upstream->fail_later);
}

bool upstream_request_forget(struct upstream_request *request)
{
    struct upstream *upstream = request->upstream;
    if (!upstream)
        return false;
    bool sent = request->state == UPSTREAM_REQUEST_SENT;
    upstream->given_up += sent;
    upstream_request_drop(request);
    return sent && upstream->state == UPSTREAM_READY;
}

void upstream_request_cancel(struct upstream_request *request, const char *reason)
{
    struct upstream *upstream = request->upstream;
    if (upstream_request_forget(request))
        upstream_message_cancelled(upstream, request->id, reason);
}

// ---- the timeout ----------------------------------------------------------------------------

static int64_t time_limit(const struct upstream_request *request)
{
    const struct server *server = request->upstream->server;
    return request->initial ? server->start_timeout_ms : request->timeout_ms ? request->timeout_ms : server->timeout_ms;
}

static int64_t time_in_all(const struct upstream_request *request)
{
    return loop_now(request->upstream->spec.loop) - request->started_ms;
}

// The option that bounds how long the request may go on as it does.
static void name_limit(const struct upstream_request *request, struct err *err)
{
    const struct server *server = request->upstream->server;
    err->option_ms = time_limit(request);
    if (time_in_all(request) >= server->max_timeout_ms) {
        err->option = "max_timeout";
        err->option_ms = server->max_timeout_ms;
    } else if (request->held_until_ms) {
        err->option = "timeouts.ask";
        err->option_ms = request->held_ms;
    } else {
        err->option = request->initial ? "start_timeout" : request->timeout_ms ? "tool_timeouts" : "timeout";
    }
}

static void on_timeout(struct loop_timer *timer)
{
    struct upstream_request *request = timer->arg;
    struct upstream *upstream = request->upstream;
    struct err err;
    if (request->stopped_ms || upstream->stopped_ms) {
        loop_timer_set(upstream->spec.loop, timer, time_limit(request));
        return;
    }
    struct err limit = {0};
    name_limit(request, &limit);
    (void)err_set(&err, ERR_UPSTREAM_TIMEOUT,
                  "server \"%s\" did not answer%s within %lld ms; the limit is %s = %lld ms", upstream->server->name,
                  request->initial ? " initialize" : "", (long long)time_in_all(request), limit.option,
                  (long long)limit.option_ms);
    err.option = limit.option;
    err.option_ms = limit.option_ms;
    upstream->given_up++;
    upstream->events->on_timeout(upstream, request);
    if (!request->initial && upstream->state == UPSTREAM_READY)
        upstream_message_cancelled(upstream, request->id, "timeout");
    upstream_request_fail(request, &err);
}

static void arm(struct upstream_request *request)
{
    struct upstream *upstream = request->upstream;
    int64_t ms = time_limit(request), held = request->held_until_ms - loop_now(upstream->spec.loop);
    if (held > ms)
        ms = held;
    int64_t left = upstream->server->max_timeout_ms - time_in_all(request);
    loop_timer_set(upstream->spec.loop, &request->timeout, ms < left ? ms : left);
}

void upstream_request_stop_clock(struct upstream *upstream, struct upstream_request *request)
{
    int64_t *stopped_ms = request ? &request->stopped_ms : &upstream->stopped_ms;
    *stopped_ms = loop_now(upstream->spec.loop);
}

static void start_clock(struct upstream_request *request, int64_t stopped_ms)
{
    request->started_ms += loop_now(request->upstream->spec.loop) - stopped_ms;
    if (request->timeout.slot)
        arm(request);
}

void upstream_request_start_clock(struct upstream *upstream, struct upstream_request *request)
{
    int64_t *since = request ? &request->stopped_ms : &upstream->stopped_ms, stopped_ms = *since;
    void *value;
    *since = 0;
    if (!stopped_ms)
        return;
    if (request)
        start_clock(request, stopped_ms);
    for (size_t at = 0; !request && map_next(&upstream->in_flight, &at, NULL, &value);)
        start_clock(value, stopped_ms);
}

void upstream_request_touch(struct upstream_request *request)
{
    if (request->upstream && request->timeout.slot)
        arm(request);
}

void upstream_request_hold(struct upstream_request *request, int64_t patience_ms)
{
    if (!request->upstream)
        return;
    request->held_ms = patience_ms;
    request->held_until_ms = patience_ms ? loop_now(request->upstream->spec.loop) + patience_ms : 0;
    upstream_request_touch(request);
}

// ---- sending --------------------------------------------------------------------------------

uint64_t upstream_request_reserve(struct upstream *upstream, struct upstream_request *request)
{
    request->upstream = upstream;
    set_state(request, UPSTREAM_REQUEST_RESERVED, NULL);
    request->id = ++upstream->next_id;
    request->patience_ms = request->stopped_ms = request->held_until_ms = 0;
    request->timeout = (struct loop_timer){.on_due = on_timeout, .arg = request, .name = "request timeout"};
    return request->id;
}

bool upstream_request_may_send(struct upstream_request *request, struct err *err)
{
    return !request->may_send || request->may_send(request, err);
}

static void send_now(struct upstream_request *request, struct blob *message)
{
    struct upstream *upstream = request->upstream;
    set_state(request, UPSTREAM_REQUEST_SENT, NULL);
    request->sent_ms = loop_now(upstream->spec.loop);
    arm(request);
    upstream->transport->send(upstream, message, request);
}

void upstream_request_send_again(struct upstream_request *request)
{
    struct blob *text = blob_ref(request->text);
    send_now(request, text);
    blob_unref(text);
}

void upstream_request_flush(struct upstream *upstream)
{
    while (upstream->state == UPSTREAM_READY && !list_empty(&upstream->waiting)) {
        struct upstream_request *request = first_of(&upstream->waiting);
        struct err err;
        if (upstream_request_may_send(request, &err))
            upstream_request_send_again(request);
        else
            upstream_request_fail(request, &err);
    }
}

// Takes a request out of flight, if it was, and stops its timeout.
static void wait_in(struct upstream_request *request, enum upstream_request_state state, struct list *list)
{
    loop_timer_stop(request->upstream->spec.loop, &request->timeout);
    request->transfer = NULL;
    set_state(request, state, list);
}

void upstream_request_await_ready(struct upstream_request *request)
{
    wait_in(request, UPSTREAM_REQUEST_WAITING, &request->upstream->waiting);
}

bool upstream_request_take_back(struct upstream_request *request, struct blob *text)
{
    if (request->initial || request == &request->upstream->ping ||
        upstream_request_retried(request, UPSTREAM_RETRY_UNSENT))
        return false;
    request->retried |= UPSTREAM_RETRY_UNSENT;
    if (!request->text)
        request->text = blob_ref(text);
    upstream_request_await_ready(request);
    return true;
}

void upstream_request_await_token(struct upstream_request *request)
{
    wait_in(request, UPSTREAM_REQUEST_REFUSED, &request->upstream->refused);
}

// An expired token is not sent: the request waits for the next one.
static void send_with_next_token(struct upstream_request *request, struct blob *message)
{
    struct upstream *upstream = request->upstream;
    bool first = list_empty(&upstream->refused);
    request->text = blob_ref(message);
    upstream_request_await_token(request);
    if (first)
        access_get(upstream->spec.access, &upstream->renewal);
}

void upstream_request_send_message(struct upstream_request *request, struct blob *message)
{
    struct upstream *upstream = request->upstream;
    request->started_ms = loop_now(upstream->spec.loop);
    upstream->events->on_needed(upstream);
    if (upstream->state == UPSTREAM_READY && upstream->spec.access && access_stale(upstream->spec.access)) {
        send_with_next_token(request, message);
    } else if (upstream->state == UPSTREAM_READY || request->initial) {
        send_now(request, message);
    } else {
        request->text = blob_ref(message);
        if (upstream_awaits_start(upstream))
            upstream_request_await_ready(request);
        else
            upstream_request_fail_later(request);
    }
    blob_unref(message);
}

void upstream_request_send(struct upstream_request *request, const char *method, struct span params)
{
    struct buf text = {0};
    buf_reserve(&text, params.len + 128);
    message_begin_request(&text, request->id, method);
    if (params.len) {
        buf_put_text(&text, ",\"params\":");
        buf_put_span(&text, params);
    }
    buf_put_char(&text, '}');
    upstream_request_send_message(request, blob_take(&text));
}
