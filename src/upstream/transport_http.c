// Owns the Streamable HTTP transport (2025-03-26 to 2025-11-25) towards a server.
//
// Each message is one POST. A request's answer comes as JSON or on the POST's own event stream; a stream that ends early after an
// event id is resumed by GET. One standalone GET stream carries the messages that belong to no request. After a 404 the session is
// lost: the gateway sends initialize and then the request again.
#include "base/log.h"
#include "base/mem.h"
#include "incoming.h"
#include "receive.h"
#include "renewal.h"
#include "request.h"
#include "transport.h"
#include <stdlib.h>
#include <strings.h>

#define RETRY_DEFAULT_MS 1000
#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 30000
#define STOP_WAIT_MS 1000
#define DRAIN_MS 2000

struct http_wire {
    struct upstream *upstream;
    struct http_target *target;
    struct list exchanges;
    struct loop_timer listen_again;
    int64_t listen_pause_ms;
    bool has_session, stopping, listening;
    unsigned generation;  // of the session
    unsigned unasked;     // POSTs that no request waits for
    struct buf last_id;   // the last event id of the standalone stream
};

enum exchange_kind { EXCHANGE_POST, EXCHANGE_GREET, EXCHANGE_LISTEN, EXCHANGE_RESUME, EXCHANGE_DELETE };

// One HTTP transfer, with the state of its request and its response.
struct exchange {
    struct http_wire *wire;
    struct list node;
    enum exchange_kind kind;
    struct incoming in;      // the response, with the request that it answers, if any
    struct loop_timer wait;  // before a resuming GET, or until the standalone stream has been idle for too long
    int status;
    int64_t patience_ms;  // transport_hear()
    bool initial, ended;
    bool unasked;         // a POST that no request waits for
    unsigned generation;  // of the session that it was sent in
    unsigned presented;   // the version of the token that it was sent with
};

static const struct http_events exchange_events;
static const struct incoming_owner exchange_owner;

static struct exchange *exchange_new(struct http_wire *wire, enum exchange_kind kind, struct upstream_request *request)
{
    struct exchange *exchange = mem_new(struct exchange);
    exchange->wire = wire;
    exchange->kind = kind;
    exchange->in = (struct incoming){
        .owner = &exchange_owner, .arg = exchange, .request = request, .stray = kind != EXCHANGE_LISTEN && !request};
    incoming_open(&exchange->in, wire->upstream,
                  request && request->memory ? request->memory : wire->upstream->spec.memory);
    exchange->initial = request && request->initial;
    exchange->unasked = kind == EXCHANGE_POST && !request;
    if (exchange->unasked)
        wire->unasked++;
    exchange->generation = wire->generation;
    list_append(&wire->exchanges, &exchange->node);
    if (request)
        request->transfer = exchange;
    return exchange;
}

static void exchange_free(void *object)
{
    struct exchange *exchange = object;
    incoming_release(&exchange->in);
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
    incoming_close(&exchange->in);
    if (exchange->in.request)
        exchange->in.request->transfer = NULL;
    exchange->in.request = NULL;
    loop_timer_stop(loop, &exchange->wait);
    list_remove(&exchange->node);
    loop_reap(loop, exchange, exchange_free);
}

static int64_t time_limit(const struct exchange *exchange)
{
    const struct server *server = exchange->wire->upstream->server;
    switch (exchange->kind) {
    case EXCHANGE_DELETE: return STOP_WAIT_MS;
    case EXCHANGE_GREET: return server->start_timeout_ms;
    case EXCHANGE_POST: return exchange->in.request ? 0 : server->timeout_ms;  // a request has its own timer
    default: return 0;
    }
}

static void exchange_start(struct exchange *exchange, enum http_method method, struct blob *body)
{
    struct http_wire *wire = exchange->wire;
    const struct buf *last_id = &exchange->in.parser.id;
    exchange->presented = transport_present(wire->upstream, wire->target);
    transport_put_assertion(wire->upstream, wire->target, exchange->in.request);
    struct buf header = {0};
    if (exchange->kind == EXCHANGE_RESUME || (exchange->kind == EXCHANGE_LISTEN && last_id->len))
        buf_printf(&header, "Last-Event-ID: %.*s", SPAN_ARG(buf_span(last_id)));
    struct http_request request = {
        .method = method,
        .extra_header = header.len ? buf_text(&header) : NULL,
        .timeout_ms = time_limit(exchange),
        .urgent = !exchange->in.request && exchange->kind != EXCHANGE_LISTEN,
        .events = &exchange_events,
        .arg = exchange,
    };
    if (body)
        transport_set_body(&request, body);
    exchange->status = 0;
    incoming_restart(&exchange->in);
    exchange->in.transfer = http_transfer_start(wire->target, &request);
    buf_release(&header);
}

// ---- receiving ------------------------------------------------------------------------------

static bool is_type(const char *header, const char *type)
{
    size_t len = strlen(type);
    return header && strncasecmp(header, type, len) == 0 && (!header[len] || strchr("; \t", header[len]));
}

static void on_head(void *arg, struct http_transfer *transfer, int status)
{
    struct exchange *exchange = arg;
    transport_note_byte(exchange->wire->upstream);
    exchange->status = status;
    exchange->in.events = status == 200 && is_type(http_transfer_header(transfer, "content-type"), "text/event-stream");
    const char *length = exchange->in.events ? NULL : http_transfer_header(transfer, "content-length");
    incoming_expect(&exchange->in, length ? strtoul(length, NULL, 10) : 0);
    exchange->patience_ms = transport_hear(exchange->wire->upstream, transfer, status);
    const char *session = http_transfer_header(transfer, "mcp-session-id");
    if (exchange->initial && status == 200 && session) {
        http_target_header(exchange->wire->target, "Mcp-Session-Id", session);
        exchange->wire->has_session = true;
    }
}

static void watch_idle(struct exchange *exchange)
{
    const struct upstream *upstream = exchange->wire->upstream;
    if (exchange->kind == EXCHANGE_LISTEN && upstream->server->idle_stream_timeout_ms)
        loop_timer_set(upstream->spec.loop, &exchange->wait, upstream->server->idle_stream_timeout_ms);
}

static bool on_data(void *arg, struct span bytes)
{
    struct exchange *exchange = arg;
    transport_note_byte(exchange->wire->upstream);
    watch_idle(exchange);
    return incoming_take(&exchange->in, bytes);
}

static char *body_room(void *arg, size_t bytes)
{
    struct exchange *exchange = arg;
    return incoming_body_room(&exchange->in, bytes);
}

static void http_resume(struct upstream *upstream)
{
    const struct http_wire *wire = upstream->wire;
    list_each(node, &wire->exchanges)
        incoming_resume(&list_entry(node, struct exchange, node)->in);
}

// ---- finished transfers ---------------------------------------------------------------------

static void fail_request(struct exchange *exchange, const struct err *err)
{
    struct upstream_request *request = exchange->in.request;
    exchange_end(exchange);
    if (request)
        upstream_request_fail(request, err);
}

static void resume_now(struct loop_timer *timer)
{
    struct exchange *exchange = timer->arg;
    exchange_start(exchange, HTTP_GET, NULL);
}

// A stream ended before the answer. If it had an event id it is resumed with a GET; otherwise the request fails.
static void stream_ended(struct exchange *exchange, const struct err *err)
{
    struct err died;
    if (exchange->in.parser.id.len && exchange->wire->upstream->state != UPSTREAM_CLOSING) {
        int64_t wanted = exchange->in.parser.retry_ms >= 0 ? exchange->in.parser.retry_ms : RETRY_DEFAULT_MS;
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

static void listen_ended(struct exchange *exchange);

// The connection may be dead although neither side has closed it, so the stream is opened again.
static void on_idle(struct loop_timer *timer)
{
    struct exchange *exchange = timer->arg;
    log_debug("event stream is idle, opening it again", LOG_STR("server", exchange->wire->upstream->server->name));
    listen_ended(exchange);
}

static void listen_start(struct http_wire *wire, struct span last_id)
{
    if (wire->listening)
        return;
    wire->listening = true;
    struct exchange *exchange = exchange_new(wire, EXCHANGE_LISTEN, NULL);
    buf_put_span(&exchange->in.parser.id, last_id);
    exchange->wait = (struct loop_timer){.on_due = on_idle, .arg = exchange, .name = "idle stream"};
    watch_idle(exchange);
    exchange_start(exchange, HTTP_GET, NULL);
}

static void listen_again(struct loop_timer *timer)
{
    struct http_wire *wire = timer->arg;
    if (wire->upstream->state == UPSTREAM_READY)
        listen_start(wire, buf_span(&wire->last_id));
}

// Without a standalone stream the server cannot announce changes of its lists, even if it declared that it does.
static void expect_no_news(struct upstream_abilities *can)
{
    can->tools_changed = can->prompts_changed = can->resources_changed = false;
}

static void listen_ended(struct exchange *exchange)
{
    struct http_wire *wire = exchange->wire;
    wire->listening = false;
    buf_clear(&wire->last_id);
    buf_put_span(&wire->last_id, buf_span(&exchange->in.parser.id));
    bool refused = exchange->status >= 400 && exchange->status < 500 &&
                   !(exchange->status == 401 && wire->upstream->spec.access);  // the next token may be accepted
    if (exchange->status == 404 && exchange->generation == wire->generation && wire->has_session) {
        exchange_end(exchange);
        forget_session(wire);
        wire->upstream->events->on_session_lost(wire->upstream);
        return;
    }
    if (exchange->in.events)
        wire->listen_pause_ms =
            exchange->in.parser.retry_ms >= RETRY_MIN_MS ? exchange->in.parser.retry_ms : RETRY_DEFAULT_MS;
    else
        wire->listen_pause_ms = wire->listen_pause_ms * 2 < RETRY_MAX_MS ? wire->listen_pause_ms * 2 : RETRY_MAX_MS;
    if (refused)  // 405 and similar answers are normal: the server has no standalone stream
        expect_no_news(&wire->upstream->abilities);
    else if (!wire->stopping)
        loop_timer_set(wire->upstream->spec.loop, &wire->listen_again, wire->listen_pause_ms);
    exchange_end(exchange);
}

// True if a login is needed: the server refuses the token (401), or requires more scope (403).
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
        upstream->events->on_greeted_late(upstream, presented);
        return;
    }
    if (err) {
        upstream->events->on_lost(upstream, err);
        return;
    }
    listen_start(wire, (struct span){0});
    upstream->events->on_ready(upstream);
}

// The server no longer knows the session, and the request is sent again in a new one. Several requests may fail for the same lost
// session; only the first starts a new one.
static void resend(struct exchange *exchange)
{
    struct upstream *upstream = exchange->wire->upstream;
    struct upstream_request *request = exchange->in.request;
    bool first = exchange->generation == exchange->wire->generation;
    if (first)
        forget_session(exchange->wire);
    exchange_end(exchange);
    request->retried |= UPSTREAM_RETRY_SESSION;
    if (first)
        upstream->events->on_session_lost(upstream);
    upstream_request_await_ready(request);
    upstream_request_flush(upstream);
}

// Without a session, a 404 does not tell whether the server has performed the request.
static bool lost_session(const struct exchange *exchange)
{
    const struct http_wire *wire = exchange->wire;
    bool in_session = exchange->generation != wire->generation || wire->has_session;
    return exchange->status == 404 && exchange->kind == EXCHANGE_POST && in_session &&
           !upstream_request_retried(exchange->in.request, UPSTREAM_RETRY_SESSION);
}

// True: the request is sent again, in another session or with another token.
static bool tries_again(struct exchange *exchange)
{
    struct upstream_request *request = exchange->in.request;
    struct access *access = exchange->wire->upstream->spec.access;
    unsigned presented = exchange->presented;
    if (!request || !request->text)
        return false;
    if (!request->initial && lost_session(exchange)) {
        resend(exchange);
        return true;
    }
    bool renew = exchange->status == 401 && access && !upstream_request_retried(request, UPSTREAM_RETRY_TOKEN);
    bool widen = exchange->status == 403 && wants_login(exchange) &&
                 !upstream_request_retried(request, UPSTREAM_RETRY_SCOPE) && access_can_widen(access);
    if (!renew && !widen)
        return false;
    exchange_end(exchange);
    renewal_on_refused(request, renew ? UPSTREAM_RETRY_TOKEN : UPSTREAM_RETRY_SCOPE, presented);
    return true;
}

// Takes a JSON-RPC error from the body of a response with an HTTP error status. False: the body is not such an error.
static bool take_error(struct exchange *exchange)
{
    struct upstream_request *request = exchange->in.request;
    struct span body = buf_span(&exchange->in.body);
    struct message message;
    if (!request || (exchange->initial && exchange->status == 401) || body.len > MESSAGE_LARGE ||
        !message_parse(body, false, &message, &(struct err){0}) || message.kind != MESSAGE_ERROR)
        return false;
    request->patience_ms = exchange->patience_ms;
    receive_message(exchange->wire->upstream, body, NULL, request);
    exchange_end(exchange);
    return true;
}

static void fail_by_status(struct exchange *exchange)
{
    const char *server = exchange->wire->upstream->server->name;
    int status = exchange->status;
    struct err err;
    (void)err_set(&err, status == 401 || status == 403 ? ERR_UNAVAILABLE : ERR_UPSTREAM_TRANSPORT,
                  "server \"%s\" answered HTTP %d%s", server, status,
                  exchange->initial && status == 401
                      ? ": the credential is missing, unknown, expired or revoked; check the token or the "
                        "Authorization header"
                      : "");
    err.retry_after_ms = exchange->patience_ms;
    if (!exchange->in.request && exchange->kind == EXCHANGE_POST)
        log_warn("server refused a message", LOG_STR("server", server), LOG_INT("status", status));
    fail_request(exchange, &err);
}

static void bad_status(struct exchange *exchange)
{
    struct upstream *upstream = exchange->wire->upstream;
    int status = exchange->status;
    struct err err;
    if (tries_again(exchange))
        return;
    if (wants_login(exchange)) {
        access_refused(upstream->spec.access, status == 403, &err);
        fail_request(exchange, &err);
    } else if (exchange->initial && upstream->server->type == SERVER_AUTO &&
               (status == 400 || status == 404 || status == 405)) {
        log_info("server does not support Streamable HTTP, trying HTTP+SSE", LOG_STR("server", upstream->server->name),
                 LOG_INT("status", status));
        exchange_end(exchange);
        upstream->events->on_not_streamable(upstream);
    } else if (!take_error(exchange)) {
        fail_by_status(exchange);
    }
}

// The body ended. If the request is still open, the body did not answer it.
static void answered(struct exchange *exchange)
{
    struct err err;
    if (!exchange->in.request) {
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
    exchange->in.parsing = NULL;
    if (exchange->in.request)
        receive_parsed(exchange->wire->upstream, parsing, exchange->in.request);
    answered(exchange);
}

// A body that is large enough to be kept without a copy.
static void take_large(struct exchange *exchange)
{
    struct upstream *upstream = exchange->wire->upstream;
    struct blob *text = blob_take(&exchange->in.body);
    intake_hand_over(&exchange->in.intake, text);
    if (text->len > MESSAGE_LARGE) {
        exchange->in.parsing = parsing_start(upstream, text, blob_span(text), on_answer_parsed, exchange);
    } else {
        receive_message(upstream, blob_span(text), text, exchange->in.request);
        blob_unref(text);
    }
}

// Takes an answer that is not an event stream.
static void take_answer(struct exchange *exchange)
{
    struct incoming *in = &exchange->in;
    if (in->request && in->body.len > MESSAGE_SHARED)
        take_large(exchange);
    else if (in->request && in->body.len)
        intake_deliver(&in->intake, buf_span(&in->body), NULL, in->request);
    buf_release(&in->body);  // at once, so that the next answer reuses memory that is still in the cache
    if (!in->parsing)
        answered(exchange);
}

static bool is_unsent(const struct exchange *exchange)
{
    return exchange->kind == EXCHANGE_POST && exchange->in.request && exchange->in.transfer &&
           http_transfer_unsent(exchange->in.transfer);
}

// The server has got a request that it may still answer.
static bool is_busy(const struct http_wire *wire)
{
    list_each(node, &wire->exchanges) {
        const struct exchange *exchange = list_entry(node, struct exchange, node);
        if (exchange->in.request && !is_unsent(exchange))
            return true;
    }
    return false;
}

// True: its request goes out once more.
static bool goes_again(struct exchange *exchange, const struct err *err)
{
    struct http_wire *wire = exchange->wire;
    if (!err || !is_unsent(exchange) ||
        !transport_unreachable(wire->upstream, exchange->in.request, is_busy(wire), err))
        return false;
    exchange->in.request = NULL;  // it may have another exchange by now
    exchange_end(exchange);
    return true;
}

static void post_done(struct exchange *exchange, const struct err *err)
{
    const struct buf *body = &exchange->in.body;
    struct err problem;
    if (exchange->in.request && (exchange->in.events || exchange->kind == EXCHANGE_RESUME) &&
        (exchange->status == 200 || err)) {
        stream_ended(exchange, err);
        return;
    }
    if (body->overflow) {
        if (body->no_memory)
            (void)err_set(&problem, ERR_TOO_MANY, "out of memory after %zu bytes of an answer", body->len);
        else
            (void)err_set(&problem, ERR_UPSTREAM_INVALID, "the answer is larger than %zu bytes (limits.max_message)",
                          body->max);
        err = &problem;
    }
    if (err)
        fail_request(exchange, err);
    else if (exchange->status < 200 || exchange->status > 299)
        bad_status(exchange);
    else
        take_answer(exchange);
}

// Where the time to connect ran out, the error names the option.
static const struct err *explain(const struct exchange *exchange, const struct err *err, struct err *explained)
{
    if (!err || err->code != ERR_UPSTREAM_TIMEOUT || !is_unsent(exchange))
        return err;
    int64_t limit_ms = exchange->wire->upstream->server->connect_timeout_ms;
    (void)err_set(explained, err->code, "%s; the limit is connect_timeout = %lld ms", err->detail, (long long)limit_ms);
    explained->option = "connect_timeout";
    explained->option_ms = limit_ms;
    return explained;
}

static void on_done(void *arg, const struct err *err)
{
    struct exchange *exchange = arg;
    struct upstream *upstream = exchange->wire->upstream;
    struct err explained;
    err = explain(exchange, err, &explained);
    if (goes_again(exchange, err))
        return;
    exchange->in.transfer = NULL;
    switch (exchange->kind) {
    case EXCHANGE_LISTEN: listen_ended(exchange); break;
    case EXCHANGE_GREET: greeted(exchange, err); break;
    case EXCHANGE_DELETE:
        exchange_end(exchange);
        upstream->transport->release(upstream);
        upstream->events->on_stopped(upstream);
        break;
    default: post_done(exchange, err);
    }
}

static bool may_send(void *arg)
{
    struct exchange *exchange = arg;
    struct err err;
    if (exchange->kind != EXCHANGE_POST || exchange->unasked)
        return true;
    if (!exchange->in.request)  // cancelled before it was sent
        exchange_end(exchange);
    else if (upstream_request_may_send(exchange->in.request, &err))
        return true;
    else
        fail_request(exchange, &err);
    return false;
}

static const struct http_events exchange_events = {on_head, on_data, on_done, may_send, body_room};
static const struct incoming_owner exchange_owner = {.on_done = on_done};

// ---- the transport --------------------------------------------------------------------------

static bool http_start(struct upstream *upstream, struct err *err)
{
    (void)err;
    struct http_wire *wire = mem_new(struct http_wire);
    wire->upstream = upstream;
    wire->target = transport_target(upstream, upstream->server->url);
    wire->listen_again = (struct loop_timer){.on_due = listen_again, .arg = wire, .name = "server stream"};
    wire->listen_pause_ms = RETRY_DEFAULT_MS;
    list_init(&wire->exchanges);
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
        transport_lose_deaf(upstream);
        return;
    }
    if (request && !request->text)
        request->text = blob_ref(message);  // in case the session is lost, the token is refused, or it cannot be sent
    exchange_start(exchange_new(wire, EXCHANGE_POST, request), HTTP_POST, message);
}

static void drained(struct loop_timer *timer) { exchange_end(timer->arg); }

// The transfer may still run to its end, so that its connection can be reused.
static void http_forget(struct upstream *upstream, struct upstream_request *request)
{
    struct exchange *exchange = request->transfer;
    exchange->in.request = NULL;
    exchange->in.stray = true;
    loop_timer_stop(upstream->spec.loop, &exchange->wait);
    exchange->wait = (struct loop_timer){.on_due = drained, .arg = exchange, .name = "server stream"};
    if (exchange->in.transfer)
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

static void take_back_unsent(const struct http_wire *wire)
{
    list_each(node, &wire->exchanges) {
        struct exchange *exchange = list_entry(node, struct exchange, node);
        if (is_unsent(exchange) && upstream_request_take_back(exchange->in.request, NULL))
            exchange->in.request = NULL;
    }
}

static void http_release(struct upstream *upstream)
{
    struct http_wire *wire = upstream->wire;
    if (!wire)
        return;
    take_back_unsent(wire);
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
        upstream->events->on_stopped(upstream);
        return;
    }
    exchange_start(exchange_new(wire, EXCHANGE_DELETE, NULL), HTTP_DELETE, NULL);
}

const struct transport transport_http = {
    .name = "http",
    .start = http_start,
    .send = http_send,
    .forget = http_forget,
    .greet = http_greet,
    .stop = http_stop,
    .release = http_release,
    .resume = http_resume,
};
