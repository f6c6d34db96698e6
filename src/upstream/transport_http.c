// Owns the Streamable HTTP transport (2025-03-26 to 2025-11-25) towards a server.
//
// Each message is one POST. A request's answer comes as JSON or on the POST's own event stream; a stream
// that ends early after an event id is resumed by GET. One standalone GET stream brings what belongs to
// no request. 404 on a session means: initialize anew and send the request once more.
#include "base/log.h"
#include "base/mem.h"
#include "mcp/sse.h"
#include "transport.h"
#include <stdlib.h>
#include <strings.h>

#define RETRY_DEFAULT_MS 1000
#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 30000
#define STOP_WAIT_MS 1000
#define DRAIN_MS 2000
#define RESERVE_MAX ((size_t)1 << 20)

struct http_wire {
    struct upstream *upstream;
    struct http_target *target;
    struct list exchanges;
    struct loop_timer listen_again;
    int64_t listen_pause_ms;
    bool has_session, stopping, listening;
    unsigned generation;  // of the session
    unsigned presented;   // version of the token that the target's header has
    unsigned unasked;     // posts that no caller waits for
    struct buf last_id;   // of the standalone stream
};

enum exchange_kind { EXCHANGE_POST, EXCHANGE_GREET, EXCHANGE_LISTEN, EXCHANGE_RESUME, EXCHANGE_DELETE };

// One HTTP transfer and what it carries.
struct exchange {
    struct http_wire *wire;
    struct list node;
    enum exchange_kind kind;
    struct upstream_request *request;  // whose answer it brings, or NULL
    struct http_transfer *transfer;
    struct loop_timer wait;  // before a resuming GET
    int status;
    int64_t patience_ms;  // transport_patience()
    bool events, initial, ended;
    bool unasked;         // a post that no caller waits for
    unsigned generation;  // the wire's, when it was sent
    unsigned presented;   // the token's version, when it was sent
    struct buf body;
    struct sse_parser parser;
    struct parsing *parsing;  // a large message of it; NULL: none
    struct buf held;          // what came after that or after a slice, or waits for room
    bool waiting;             // `held` is to be read when nothing holds it back any more
    struct loop_task more;
    struct intake intake;
};

static const struct http_events exchange_events;
static void on_more(struct loop_task *task);
static void on_room(void *arg);

static struct exchange *exchange_new(struct http_wire *wire, enum exchange_kind kind, struct upstream_request *request)
{
    struct exchange *exchange = mem_new(struct exchange);
    exchange->wire = wire;
    exchange->kind = kind;
    exchange->request = request;
    exchange->initial = request && request->initial;
    exchange->unasked = kind == EXCHANGE_POST && !request;
    if (exchange->unasked)
        wire->unasked++;
    exchange->generation = wire->generation;
    exchange->more = (struct loop_task){.run = on_more, .arg = exchange, .name = "server events"};
    exchange->body.max = wire->upstream->spec.max_message;
    sse_init(&exchange->parser, wire->upstream->spec.max_message);
    struct budget *memory = request && request->memory ? request->memory : wire->upstream->spec.memory;
    intake_open(&exchange->intake, wire->upstream, memory, on_room, exchange);
    list_append(&wire->exchanges, &exchange->node);
    if (request)
        request->transfer = exchange;
    return exchange;
}

static void exchange_free(void *object)
{
    struct exchange *exchange = object;
    sse_release(&exchange->parser);
    buf_release(&exchange->body);
    buf_release(&exchange->held);
    free(exchange);
}

static void exchange_end(struct exchange *exchange)
{
    struct loop *loop = exchange->wire->upstream->spec.loop;
    if (exchange->ended)
        return;
    exchange->ended = true;
    if (exchange->unasked)
        exchange->wire->unasked--;
    if (exchange->transfer)
        http_cancel(exchange->transfer);
    exchange->transfer = NULL;
    parsing_drop(exchange->parsing);
    exchange->parsing = NULL;
    intake_close(&exchange->intake);
    if (exchange->request) {
        upstream_start_clock(exchange->wire->upstream, exchange->request);
        exchange->request->transfer = NULL;
    }
    exchange->request = NULL;
    loop_timer_stop(loop, &exchange->wait);
    loop_task_drop(&exchange->more);
    list_remove(&exchange->node);
    loop_reap(loop, exchange, exchange_free);
}

// The token as it is now.
static void present(struct http_wire *wire)
{
    const struct access *access = wire->upstream->spec.access;
    if (!access || wire->presented == access_version(access))
        return;
    wire->presented = access_version(access);
    http_target_header(wire->target, "Authorization", access_header(access));
}

static void exchange_start(struct exchange *exchange, enum http_method method, struct blob *body)
{
    present(exchange->wire);
    upstream_assert(exchange->wire->upstream, exchange->wire->target, exchange->request);
    exchange->presented = exchange->wire->presented;
    struct buf header = {0};
    if (exchange->kind == EXCHANGE_RESUME || (exchange->kind == EXCHANGE_LISTEN && exchange->parser.id.len))
        buf_printf(&header, "Last-Event-ID: %.*s", SPAN_ARG(buf_span(&exchange->parser.id)));
    bool large = body && transport_is_large(body);
    struct http_request request = {
        .method = method,
        .body = large || !body ? (struct span){0} : blob_span(body),
        .large = large ? body : NULL,
        .extra_header = header.len ? buf_text(&header) : NULL,
        .timeout_ms = exchange->kind == EXCHANGE_DELETE  ? STOP_WAIT_MS
                      : exchange->kind == EXCHANGE_GREET ? exchange->wire->upstream->server->start_timeout_ms
                      : exchange->kind == EXCHANGE_POST && !exchange->request
                          ? exchange->wire->upstream->server->timeout_ms
                          : 0,  // a request has its own timer
        .urgent = !exchange->request && exchange->kind != EXCHANGE_LISTEN,
        .events = &exchange_events,
        .arg = exchange,
    };
    exchange->status = 0;
    sse_restart(&exchange->parser);
    buf_clear(&exchange->held);
    exchange->waiting = false;
    exchange->transfer = http_start(exchange->wire->target, &request);
    buf_release(&header);
}

// ---- receiving ------------------------------------------------------------------------------

static bool is_type(const char *header, const char *type)
{
    size_t len = strlen(type);
    return header && strncasecmp(header, type, len) == 0 && (!header[len] || strchr("; \t", header[len]));
}

// What of it is in memory.
static size_t kept(const struct exchange *exchange)
{
    return exchange->body.len + exchange->held.len + exchange->parser.data.len + exchange->parser.line.len;
}

// Is there room for so many bytes in all? False: nothing more is read until there is.
static bool find_room(struct exchange *exchange, size_t bytes)
{
    if (intake_cover(&exchange->intake, bytes))
        return true;
    exchange->waiting = true;
    http_pause(exchange->transfer);
    if (exchange->request)
        upstream_stop_clock(exchange->wire->upstream, exchange->request);
    return false;
}

static void on_head(void *arg, struct http_transfer *transfer, int status)
{
    struct exchange *exchange = arg;
    exchange->status = status;
    exchange->patience_ms = transport_patience(transfer, status);
    exchange->events = status == 200 && is_type(http_transfer_header(transfer, "content-type"), "text/event-stream");
    const char *length = exchange->events ? NULL : http_transfer_header(transfer, "content-length");
    size_t expected = length ? strtoul(length, NULL, 10) : 0;
    if (expected < RESERVE_MAX)
        buf_reserve(&exchange->body, expected);
    if (expected <= exchange->body.max)
        (void)find_room(exchange, expected);
    if (exchange->wire->upstream->spec.access && (status == 401 || status == 403))
        access_hear(exchange->wire->upstream->spec.access, transfer);
    const char *session = http_transfer_header(transfer, "mcp-session-id");
    if (exchange->initial && status == 200 && session) {
        http_target_header(exchange->wire->target, "Mcp-Session-Id", session);
        exchange->wire->has_session = true;
    }
}

// The rest of a stream whose request is over: nobody may be asked or told on its behalf any more.
static bool is_stray(const struct exchange *exchange)
{
    return exchange->kind != EXCHANGE_LISTEN && !exchange->request;
}

static void on_stray(struct exchange *exchange, struct span data)
{
    struct message message;
    struct err err;
    if (data.len <= MESSAGE_LARGE && message_parse(data, false, &message, &err) && message.kind == MESSAGE_REQUEST)
        upstream_refuse(exchange->wire->upstream, message.id, -32603, "the request this belongs to is over");
}

static void on_event_parsed(void *arg, struct parsing *parsing);

static void on_event(struct exchange *exchange, const struct sse_event *event)
{
    struct upstream *upstream = exchange->wire->upstream;
    if (is_stray(exchange)) {
        on_stray(exchange, event->data);
    } else if (!event->data.len || !span_is(event->type, "message")) {
        return;
    } else if (event->data.len > MESSAGE_LARGE) {
        struct blob *text = sse_take(&exchange->parser);
        intake_hand_over(&exchange->intake, text);
        http_pause(exchange->transfer);
        exchange->parsing = parsing_start(upstream, text, event->data, on_event_parsed, exchange);
    } else {
        intake_deliver(&exchange->intake, event->data, NULL, exchange->request);
    }
}

static bool is_held(const struct exchange *exchange)
{
    return exchange->parsing || exchange->wire->upstream->paused || intake_waits(&exchange->intake);
}

// Hands on the events of a slice; the rest waits. False: it is not wanted.
static bool feed(struct exchange *exchange, struct span bytes)
{
    struct sse_event event;
    enum sse_status status = SSE_EVENT;
    for (int left = TRANSPORT_EVENTS_A_TURN; !is_held(exchange) && left > 0; left--) {
        if ((status = sse_next(&exchange->parser, &bytes, &event)) == SSE_MORE)
            return true;
        if (status == SSE_EVENT)
            on_event(exchange, &event);
        else if (!is_stray(exchange))
            receive_dropped(exchange->wire->upstream, event.data, exchange->parser.data.no_memory, exchange->request);
        if (!exchange->transfer)
            return false;
    }
    buf_put_span(&exchange->held, bytes);
    exchange->waiting = true;
    http_pause(exchange->transfer);
    if (!is_held(exchange))
        loop_task_put_later(exchange->wire->upstream->spec.loop, &exchange->more);
    return true;
}

// False: the rest is not wanted.
static bool take(struct exchange *exchange, struct span bytes)
{
    bool more = true;
    if (exchange->events)
        more = feed(exchange, bytes);
    else if (bytes.at == exchange->body.at + exchange->body.len)  // of body_room()
        exchange->body.len += bytes.len;
    else
        buf_put_span(&exchange->body, bytes);
    if (!exchange->ended)
        intake_keep(&exchange->intake, exchange->events ? kept(exchange) : SIZE_MAX);
    return more && !exchange->body.overflow;
}

static bool on_data(void *arg, struct span bytes)
{
    struct exchange *exchange = arg;
    if (find_room(exchange, kept(exchange) + bytes.len))
        return take(exchange, bytes);
    buf_put_span(&exchange->held, bytes);
    return true;
}

static char *body_room(void *arg, size_t bytes)
{
    const struct exchange *exchange = arg;
    const struct buf *body = &exchange->body;
    bool fits = bytes < body->room - body->len && bytes <= body->max - body->len;
    return fits && !exchange->events ? body->at + body->len : NULL;
}

static void on_done(void *arg, const struct err *err);

static void go_on(struct exchange *exchange)
{
    struct buf held = exchange->held;
    exchange->held = (struct buf){0};
    exchange->waiting = false;
    bool more = take(exchange, buf_span(&held));
    buf_release(&held);
    if (!exchange->transfer || exchange->waiting)
        return;
    if (more) {
        http_resume(exchange->transfer);
        return;
    }
    struct err err;
    (void)err_set(&err, ERR_UPSTREAM_TRANSPORT, "server \"%s\" sent an answer that is too large",
                  exchange->wire->upstream->server->name);
    http_cancel(exchange->transfer);
    on_done(exchange, &err);
}

static void on_more(struct loop_task *task)
{
    struct exchange *exchange = task->arg;
    if (exchange->waiting && !is_held(exchange))
        go_on(exchange);
}

static void on_room(void *arg)
{
    struct exchange *exchange = arg;
    if (exchange->request)
        upstream_start_clock(exchange->wire->upstream, exchange->request);
    loop_task_put(exchange->wire->upstream->spec.loop, &exchange->more);
}

// The stream goes on after a large message.
static void on_event_parsed(void *arg, struct parsing *parsing)
{
    struct exchange *exchange = arg;
    exchange->parsing = NULL;
    if (!is_stray(exchange))
        receive_parsed(exchange->wire->upstream, parsing, exchange->request);
    if (exchange->transfer && !is_held(exchange))
        go_on(exchange);
}

static void http_resume_wire(struct upstream *upstream)
{
    const struct http_wire *wire = upstream->wire;
    list_each(node, &wire->exchanges) {
        struct exchange *exchange = list_entry(node, struct exchange, node);
        if (exchange->waiting)
            loop_task_put(upstream->spec.loop, &exchange->more);
    }
}

// ---- what a finished transfer means ---------------------------------------------------------

static void fail_request(struct exchange *exchange, const struct err *err)
{
    struct upstream_request *request = exchange->request;
    struct upstream *upstream = exchange->wire->upstream;
    exchange_end(exchange);
    if (request)
        upstream_on_request_failed(upstream, request, err);
}

static void resume_now(struct loop_timer *timer)
{
    struct exchange *exchange = timer->arg;
    exchange_start(exchange, HTTP_GET, NULL);
}

// A stream ended before the answer: after an id it goes on with a GET, without one it is over.
static void stream_ended(struct exchange *exchange, const struct err *err)
{
    struct err died;
    if (exchange->parser.id.len && exchange->wire->upstream->state != UPSTREAM_CLOSING) {
        int64_t wanted = exchange->parser.retry_ms >= 0 ? exchange->parser.retry_ms : RETRY_DEFAULT_MS;
        int64_t pause = wanted > RETRY_MIN_MS ? wanted : RETRY_MIN_MS;
        exchange->kind = EXCHANGE_RESUME;
        exchange->wait = (struct loop_timer){.on_due = resume_now, .arg = exchange, .name = "stream resumption"};
        loop_timer_set(exchange->wire->upstream->spec.loop, &exchange->wait, pause);
        return;
    }
    if (!err) {
        (void)err_set(&died, ERR_UPSTREAM_DIED, "server \"%s\" closed the stream before it answered",
                      exchange->wire->upstream->server->name);
        err = &died;
    }
    fail_request(exchange, err);
}

static void forget_session(struct http_wire *wire)
{
    wire->has_session = false;
    wire->generation++;
    buf_clear(&wire->last_id);
    wire->listening = false;
    http_target_header(wire->target, "Mcp-Session-Id", NULL);
    http_target_header(wire->target, "MCP-Protocol-Version", NULL);
    loop_timer_stop(wire->upstream->spec.loop, &wire->listen_again);
    list_each(node, &wire->exchanges) {
        struct exchange *exchange = list_entry(node, struct exchange, node);
        if (exchange->kind == EXCHANGE_LISTEN)
            exchange_end(exchange);
    }
}

static void listen_start(struct http_wire *wire, struct span last_id)
{
    if (wire->listening)
        return;
    wire->listening = true;
    struct exchange *exchange = exchange_new(wire, EXCHANGE_LISTEN, NULL);
    buf_put_span(&exchange->parser.id, last_id);
    exchange_start(exchange, HTTP_GET, NULL);
}

static void listen_again(struct loop_timer *timer)
{
    struct http_wire *wire = timer->arg;
    if (wire->upstream->state == UPSTREAM_READY)
        listen_start(wire, buf_span(&wire->last_id));
}

static void listen_ended(struct exchange *exchange)
{
    struct http_wire *wire = exchange->wire;
    wire->listening = false;
    buf_clear(&wire->last_id);
    buf_put_span(&wire->last_id, buf_span(&exchange->parser.id));
    bool refused = exchange->status >= 400 && exchange->status < 500 &&
                   !(exchange->status == 401 && wire->upstream->spec.access);  // the next token may do
    if (exchange->status == 404 && exchange->generation == wire->generation && wire->has_session) {
        exchange_end(exchange);
        forget_session(wire);
        upstream_on_session_lost(wire->upstream);
        return;
    }
    if (exchange->events)
        wire->listen_pause_ms =
            exchange->parser.retry_ms >= RETRY_MIN_MS ? exchange->parser.retry_ms : RETRY_DEFAULT_MS;
    else
        wire->listen_pause_ms = wire->listen_pause_ms * 2 < RETRY_MAX_MS ? wire->listen_pause_ms * 2 : RETRY_MAX_MS;
    if (refused)  // 405 and its like are normal: no standalone stream here
        upstream_on_unheard(wire->upstream);
    else if (!wire->stopping)
        loop_timer_set(wire->upstream->spec.loop, &wire->listen_again, wire->listen_pause_ms);
    exchange_end(exchange);
}

// A login is needed: the server takes no token of ours (401), or wants one that allows more (403).
static bool wants_login(const struct exchange *exchange)
{
    const struct access *access = exchange->wire->upstream->spec.access;
    if (!access)
        return false;
    const char *error = access_challenge(access)->error;
    return exchange->status == 401 || (exchange->status == 403 && error && strcmp(error, "insufficient_scope") == 0);
}

static void greeted(struct exchange *exchange, const struct err *err)
{
    struct http_wire *wire = exchange->wire;
    struct upstream *upstream = wire->upstream;
    struct err refused;
    unsigned presented = exchange->presented;
    bool late = !err && exchange->status == 401 && upstream->spec.access && !upstream->greeted_late;
    if (!err && (exchange->status < 200 || exchange->status > 299)) {
        (void)err_set(&refused, wants_login(exchange) ? ERR_LOGIN : ERR_UNAVAILABLE,
                      "server \"%s\" answered notifications/initialized with HTTP %d", upstream->server->name,
                      exchange->status);
        refused.retry_after_ms = exchange->patience_ms;
        err = &refused;
    }
    exchange_end(exchange);
    if (late) {
        upstream_on_greeted_late(upstream, presented);
        return;
    }
    if (err) {
        upstream_on_lost(upstream, err);
        return;
    }
    listen_start(wire, (struct span){0});
    upstream_on_ready(upstream);
}

static void bad_status(struct exchange *exchange)
{
    struct upstream *upstream = exchange->wire->upstream;
    struct upstream_request *request = exchange->request;
    int status = exchange->status;
    struct message message;
    struct err err;
    if (status == 404 && exchange->kind == EXCHANGE_POST && request && !request->initial && !request->resent &&
        request->text) {
        // Several requests may hear of the same lost session; only the first starts a new one.
        bool first = exchange->generation == exchange->wire->generation;
        if (first)
            forget_session(exchange->wire);
        exchange_end(exchange);
        if (first)
            upstream_on_session_lost(upstream);
        upstream_on_resend(upstream, request);
        return;
    }
    if (status == 401 && upstream->spec.access && request && !request->renewed && request->text) {
        unsigned presented = exchange->presented;
        exchange_end(exchange);
        upstream_on_refused(upstream, request, presented);
        return;
    }
    if (wants_login(exchange)) {
        unsigned presented = exchange->presented;
        if (status == 403 && request && !request->widened && request->text && access_can_widen(upstream->spec.access)) {
            exchange_end(exchange);
            upstream_on_narrow(upstream, request, presented);
            return;
        }
        access_refused(upstream->spec.access, status == 403, &err);
        fail_request(exchange, &err);
        return;
    }
    if (exchange->initial && upstream->server->type == SERVER_AUTO &&
        (status == 400 || status == 404 || status == 405)) {
        log_info("no Streamable HTTP there, trying HTTP+SSE", LOG_STR("server", upstream->server->name),
                 LOG_INT("status", status));
        exchange_end(exchange);
        upstream_switch(upstream, &transport_sse);
        return;
    }
    bool refused = exchange->initial && status == 401;
    if (request && !refused && exchange->body.len <= MESSAGE_LARGE &&
        message_parse(buf_span(&exchange->body), false, &message, &err) && message.kind == MESSAGE_ERROR) {
        request->patience_ms = exchange->patience_ms;
        receive_message(upstream, buf_span(&exchange->body), NULL, request);
        exchange_end(exchange);
        return;
    }
    (void)err_set(&err, status == 401 || status == 403 ? ERR_UNAVAILABLE : ERR_UPSTREAM_TRANSPORT,
                  "server \"%s\" answered HTTP %d%s", upstream->server->name, status,
                  refused ? ": the credential is missing, unknown, expired or revoked; check the token or the "
                            "Authorization header"
                          : "");
    err.retry_after_ms = exchange->patience_ms;
    if (!request && exchange->kind == EXCHANGE_POST)
        log_warn("server refused a message", LOG_STR("server", upstream->server->name), LOG_INT("status", status));
    fail_request(exchange, &err);
}

// The answer came as JSON, and nothing follows.
static void answered(struct exchange *exchange)
{
    struct err err;
    if (!exchange->request) {
        exchange_end(exchange);
        return;
    }
    (void)err_set(&err, ERR_UPSTREAM_INVALID, "server \"%s\" answered HTTP %d without an answer to the request",
                  exchange->wire->upstream->server->name, exchange->status);
    fail_request(exchange, &err);
}

static void on_answer_parsed(void *arg, struct parsing *parsing)
{
    struct exchange *exchange = arg;
    exchange->parsing = NULL;
    if (exchange->request)
        receive_parsed(exchange->wire->upstream, parsing, exchange->request);
    answered(exchange);
}

// One that is worth keeping where it is.
static void take_large(struct exchange *exchange)
{
    struct upstream *upstream = exchange->wire->upstream;
    struct blob *text = blob_take(&exchange->body);
    intake_hand_over(&exchange->intake, text);
    if (text->len > MESSAGE_LARGE) {
        exchange->parsing = parsing_start(upstream, text, blob_span(text), on_answer_parsed, exchange);
    } else {
        receive_message(upstream, blob_span(text), text, exchange->request);
        blob_unref(text);
    }
}

static void on_done(void *arg, const struct err *err)
{
    struct exchange *exchange = arg;
    struct upstream *upstream = exchange->wire->upstream;
    exchange->transfer = NULL;
    if (exchange->kind == EXCHANGE_DELETE) {
        exchange_end(exchange);
        upstream->transport->release(upstream);
        upstream_on_stopped(upstream);
        return;
    }
    if (exchange->kind == EXCHANGE_LISTEN) {
        listen_ended(exchange);
        return;
    }
    if (exchange->kind == EXCHANGE_GREET) {
        greeted(exchange, err);
        return;
    }
    if (exchange->request && (exchange->events || exchange->kind == EXCHANGE_RESUME) &&
        (exchange->status == 200 || err)) {
        stream_ended(exchange, err);
        return;
    }
    struct err problem;
    if (exchange->body.overflow) {
        if (exchange->body.no_memory)
            (void)err_set(&problem, ERR_TOO_MANY, "no memory for an answer of more than %zu bytes", exchange->body.len);
        else
            (void)err_set(&problem, ERR_UPSTREAM_INVALID, "the answer is larger than %zu bytes", exchange->body.max);
        err = &problem;
    }
    if (err) {
        fail_request(exchange, err);
        return;
    }
    if (exchange->status < 200 || exchange->status > 299) {
        bad_status(exchange);
        return;
    }
    if (exchange->request && exchange->body.len > MESSAGE_SHARED)
        take_large(exchange);
    else if (exchange->request && exchange->body.len)
        intake_deliver(&exchange->intake, buf_span(&exchange->body), NULL, exchange->request);
    buf_release(&exchange->body);  // now, while it is warm: the next answer gets the same memory
    if (!exchange->parsing)
        answered(exchange);
}

static bool may_send(void *arg)
{
    struct exchange *exchange = arg;
    struct err err;
    if (exchange->kind != EXCHANGE_POST || exchange->unasked)
        return true;
    if (!exchange->request)  // cancelled before it was sent
        exchange_end(exchange);
    else if (upstream_may_send(exchange->request, &err))
        return true;
    else
        fail_request(exchange, &err);
    return false;
}

static const struct http_events exchange_events = {on_head, on_data, on_done, may_send, body_room};

// ---- the transport --------------------------------------------------------------------------

static bool http_start_wire(struct upstream *upstream, struct err *err)
{
    (void)err;
    struct http_wire *wire = mem_new(struct http_wire);
    const struct server *server = upstream->server;
    wire->upstream = upstream;
    wire->target = http_target_new(upstream->spec.http, server->url, server->start_timeout_ms);
    http_target_trust(wire->target, server->tls.ca_file);
    wire->listen_again = (struct loop_timer){.on_due = listen_again, .arg = wire, .name = "server stream"};
    wire->listen_pause_ms = RETRY_DEFAULT_MS;
    list_init(&wire->exchanges);
    for (size_t i = 0; i < server->headers.count; i++)
        http_target_header(wire->target, server->headers.at[i].name, server->headers.at[i].value);
    http_target_header(wire->target, "Accept", "application/json, text/event-stream");
    http_target_header(wire->target, "Content-Type", "application/json");
    upstream->wire = wire;
    return true;
}

static void http_send(struct upstream *upstream, struct blob *message, struct upstream_request *request)
{
    struct http_wire *wire = upstream->wire;
    if (!wire || wire->stopping)
        return;
    if (!request && wire->unasked >= TRANSPORT_UNASKED_MAX) {
        upstream_lose_deaf(upstream);
        return;
    }
    if (request && !request->text && (upstream->spec.access || (wire->has_session && !request->initial)))
        request->text = blob_ref(message);  // in case the session is gone, or the token is refused
    exchange_start(exchange_new(wire, EXCHANGE_POST, request), HTTP_POST, message);
}

static void drained(struct loop_timer *timer) { exchange_end(timer->arg); }

// The transfer may run to its end, so that its connection can be used again.
static void http_forget(struct upstream *upstream, struct upstream_request *request)
{
    struct exchange *exchange = request->transfer;
    exchange->request = NULL;
    loop_timer_stop(upstream->spec.loop, &exchange->wait);
    exchange->wait = (struct loop_timer){.on_due = drained, .arg = exchange, .name = "server stream"};
    if (exchange->transfer)
        loop_timer_set(upstream->spec.loop, &exchange->wait, DRAIN_MS);
    else if (exchange->kind == EXCHANGE_RESUME)
        exchange_end(exchange);
}

static void http_greet(struct upstream *upstream, struct blob *initialized)
{
    struct http_wire *wire = upstream->wire;
    if (upstream->revision >= REVISION_2025_06_18)
        http_target_header(wire->target, "MCP-Protocol-Version", revision_text(upstream->revision));
    exchange_start(exchange_new(wire, EXCHANGE_GREET, NULL), HTTP_POST, initialized);
}

static void http_release(struct upstream *upstream)
{
    struct http_wire *wire = upstream->wire;
    if (!wire)
        return;
    while (!list_empty(&wire->exchanges))
        exchange_end(list_entry(wire->exchanges.next, struct exchange, node));
    loop_timer_stop(upstream->spec.loop, &wire->listen_again);
    http_target_free(wire->target);
    buf_release(&wire->last_id);
    upstream->wire = NULL;
    loop_reap(upstream->spec.loop, wire, free);
}

static void http_stop(struct upstream *upstream, int64_t within_ms)
{
    (void)within_ms;
    struct http_wire *wire = upstream->wire;
    wire->stopping = true;
    if (!wire->has_session) {
        http_release(upstream);
        upstream_on_stopped(upstream);
        return;
    }
    exchange_start(exchange_new(wire, EXCHANGE_DELETE, NULL), HTTP_DELETE, NULL);
}

const struct transport transport_http = {
    .name = "http",
    .start = http_start_wire,
    .send = http_send,
    .forget = http_forget,
    .greet = http_greet,
    .stop = http_stop,
    .release = http_release,
    .resume = http_resume_wire,
};
