// Owns the HTTP+SSE transport (2024-11-05) towards a server: one GET stream, messages POSTed to the
// endpoint it names. An endpoint of another origin is refused: it would get our headers.
//
// A token that the server refuses is renewed once: for a message, which is POSTed again, or for the stream, which is opened
// again and the handshake with it (tests/e2e/sse.test.mjs).
#include "base/log.h"
#include "base/mem.h"
#include "loop/http_url.h"
#include "mcp/sse.h"
#include "transport.h"
#include <stdlib.h>

struct sse_wire {
    struct upstream *upstream;
    struct http_target *stream_target, *post_target;
    struct http_transfer *stream;
    struct sse_parser parser;
    struct parsing *parsing;  // a large message; NULL: none
    struct buf held;          // what came after it or after a slice, or waits for room
    bool waiting;             // `held` is to be read when nothing holds it back any more
    struct loop_task more;
    struct intake intake;  // of the stream
    int status;
    int64_t patience_ms;  // transport_patience()
    unsigned presented;   // version of the token that the stream has, or the last POST had
    struct list posts;
    struct blob *hello;  // initialize, until the endpoint is known
    unsigned unasked;    // posts that no caller waits for
};

struct post {
    struct sse_wire *wire;
    struct list node;
    struct upstream_request *request;
    struct http_transfer *transfer;
    int status;
    int64_t patience_ms;  // transport_patience()
    unsigned presented;   // the token's version, when it was sent
    bool greeting;
    bool unasked;  // no caller waits for it
};

static const struct http_events post_events, stream_events;

static void post_end(struct post *post)
{
    if (post->transfer)
        http_cancel(post->transfer);
    if (post->request)
        post->request->transfer = NULL;
    if (post->unasked)
        post->wire->unasked--;
    list_remove(&post->node);
    loop_reap(post->wire->upstream->spec.loop, post, free);
}

static void set_headers(const struct upstream *upstream, struct http_target *target)
{
    const struct server *server = upstream->server;
    for (size_t i = 0; i < server->headers.count; i++)
        http_target_header(target, server->headers.at[i].name, server->headers.at[i].value);
}

// The token as it is now.
static void present(struct sse_wire *wire, struct http_target *target)
{
    const struct access *access = wire->upstream->spec.access;
    if (!access)
        return;
    wire->presented = access_version(access);
    http_target_header(target, "Authorization", access_header(access));
}

// ---- POST -----------------------------------------------------------------------------------

static void on_post_head(void *arg, struct http_transfer *transfer, int status)
{
    struct post *post = arg;
    struct access *access = post->wire->upstream->spec.access;
    post->status = status;
    post->patience_ms = transport_patience(transfer, status);
    if (access && (status == 401 || status == 403))
        access_hear(access, transfer);
}

static bool on_post_data(void *arg, struct span bytes)
{
    (void)arg;
    (void)bytes;
    return true;
}

// The token has ended: it goes out once more with another one.
static bool renews(struct upstream *upstream, struct upstream_request *request, bool greeting, unsigned presented)
{
    if (request && !request->renewed && request->text)
        upstream_on_refused(upstream, request, presented);
    else if (greeting && !upstream->greeted_late)
        upstream_on_greeted_late(upstream, presented);
    else
        return false;
    return true;
}

static void on_post_done(void *arg, const struct err *err)
{
    struct post *post = arg;
    struct upstream *upstream = post->wire->upstream;
    struct upstream_request *request = post->request;
    struct err problem;
    bool greeting = post->greeting, refused = !err && post->status == 401 && upstream->spec.access;
    unsigned presented = post->presented;
    post->transfer = NULL;
    if (!err && (post->status < 200 || post->status > 299)) {
        (void)err_set(&problem, refused ? ERR_LOGIN : ERR_UPSTREAM_TRANSPORT, "server \"%s\" answered HTTP %d",
                      upstream->server->name, post->status);
        problem.retry_after_ms = post->patience_ms;
        err = &problem;
    }
    post_end(post);
    if (refused && renews(upstream, request, greeting, presented))
        return;
    if (err && request)
        upstream_on_request_failed(upstream, request, err);
    if (greeting && err)
        upstream_lose(upstream, err);
    else if (greeting)
        upstream_on_ready(upstream);
}

static bool may_send(void *arg)
{
    struct post *post = arg;
    struct upstream_request *request = post->request;
    struct upstream *upstream = post->wire->upstream;
    struct err err = {0};
    if (post->unasked || (request && upstream_may_send(request, &err)))
        return true;
    post_end(post);
    if (request)  // else it was cancelled before it was sent
        upstream_on_request_failed(upstream, request, &err);
    return false;
}

static struct post *post_message(struct sse_wire *wire, struct blob *message, struct upstream_request *request)
{
    struct post *post = mem_new(struct post);
    post->wire = wire;
    post->request = request;
    post->unasked = !request;
    if (post->unasked)
        wire->unasked++;
    list_append(&wire->posts, &post->node);
    if (request)
        request->transfer = post;
    bool large = transport_is_large(message);
    struct http_request spec = {.method = HTTP_POST,
                                .body = large ? (struct span){0} : blob_span(message),
                                .large = large ? message : NULL,
                                .timeout_ms = wire->upstream->server->timeout_ms,
                                .urgent = !request,
                                .events = &post_events,
                                .arg = post};
    present(wire, wire->post_target);
    post->presented = wire->presented;
    upstream_assert(wire->upstream, wire->post_target, request);
    post->transfer = http_start(wire->post_target, &spec);
    return post;
}

// ---- the stream -----------------------------------------------------------------------------

static bool take_endpoint(struct sse_wire *wire, struct span data)
{
    struct upstream *upstream = wire->upstream;
    char *reference = mem_span(data);
    char *url = http_url_resolve(upstream->server->url, reference);
    bool ok = url && http_url_same_origin(upstream->server->url, url);
    if (!ok) {
        struct err err;
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "server \"%s\" names an endpoint of another origin: %.200s",
                      upstream->server->name, reference);
        upstream_lose(upstream, &err);
    } else if (!wire->post_target) {
        wire->post_target = http_target_new(upstream->spec.http, url, upstream->server->start_timeout_ms);
        http_target_trust(wire->post_target, upstream->server->tls.ca_file);
        set_headers(upstream, wire->post_target);
        http_target_header(wire->post_target, "Content-Type", "application/json");
        if (upstream->revision >= REVISION_2025_06_18)
            http_target_header(wire->post_target, "MCP-Protocol-Version", revision_text(upstream->revision));
        if (wire->hello)
            (void)post_message(wire, wire->hello, upstream->hello.upstream ? &upstream->hello : NULL);
    }
    free(reference);
    free(url);
    return ok;
}

static void on_parsed(void *arg, struct parsing *parsing);

// False: the stream is over.
static bool on_event(struct sse_wire *wire, const struct sse_event *event)
{
    if (span_is(event->type, "endpoint"))
        return take_endpoint(wire, event->data);
    if (event->data.len > MESSAGE_LARGE && span_is(event->type, "message")) {
        struct blob *text = sse_take(&wire->parser);
        intake_hand_over(&wire->intake, text);
        http_pause(wire->stream);
        wire->parsing = parsing_start(wire->upstream, text, event->data, on_parsed, wire);
    } else if (event->data.len && span_is(event->type, "message")) {
        intake_deliver(&wire->intake, event->data, NULL, NULL);
    }
    return wire->stream != NULL && !wire->upstream->losing;
}

static bool is_held(const struct sse_wire *wire)
{
    return wire->parsing || wire->upstream->paused || intake_waits(&wire->intake);
}

static size_t kept(const struct sse_wire *wire)
{
    return wire->held.len + wire->parser.data.len + wire->parser.line.len;
}

// Hands on the events of a slice; the rest waits. False: it is not wanted.
static bool feed(struct sse_wire *wire, struct span bytes)
{
    struct sse_event event;
    enum sse_status status = SSE_EVENT;
    for (int left = TRANSPORT_EVENTS_A_TURN; !is_held(wire) && left > 0; left--) {
        if ((status = sse_next(&wire->parser, &bytes, &event)) == SSE_MORE)
            return true;
        if (status == SSE_TOO_LARGE)
            receive_dropped(wire->upstream, event.data, wire->parser.data.no_memory, NULL);
        else if (!on_event(wire, &event))
            return false;
    }
    buf_put_span(&wire->held, bytes);
    wire->waiting = true;
    http_pause(wire->stream);
    if (!is_held(wire))
        loop_task_put_later(wire->upstream->spec.loop, &wire->more);
    return true;
}

static bool take(struct sse_wire *wire, struct span bytes)
{
    bool more = feed(wire, bytes);
    if (wire->stream)
        intake_keep(&wire->intake, kept(wire));
    return more;
}

static void on_stream_done(void *arg, const struct err *err);

static void go_on(struct sse_wire *wire)
{
    struct buf held = wire->held;
    wire->held = (struct buf){0};
    wire->waiting = false;
    bool more = take(wire, buf_span(&held));
    buf_release(&held);
    if (!wire->stream || wire->waiting)
        return;
    if (more) {
        http_resume(wire->stream);
        return;
    }
    struct err err;
    (void)err_set(&err, ERR_UPSTREAM_TRANSPORT, "server \"%s\" sent an event that is not wanted",
                  wire->upstream->server->name);
    http_cancel(wire->stream);
    on_stream_done(wire, &err);
}

static void on_more(struct loop_task *task)
{
    struct sse_wire *wire = task->arg;
    if (wire->waiting && wire->stream && !wire->upstream->losing && !is_held(wire))
        go_on(wire);
}

// The stream goes on after a large message.
static void on_parsed(void *arg, struct parsing *parsing)
{
    struct sse_wire *wire = arg;
    wire->parsing = NULL;
    receive_parsed(wire->upstream, parsing, NULL);
    if (wire->stream && !wire->upstream->losing && !is_held(wire))
        go_on(wire);
}

static void sse_resume(struct upstream *upstream)
{
    struct sse_wire *wire = upstream->wire;
    if (wire->waiting)
        loop_task_put(upstream->spec.loop, &wire->more);
}

static void on_room(void *arg)
{
    struct sse_wire *wire = arg;
    upstream_start_clock(wire->upstream, NULL);
    loop_task_put(wire->upstream->spec.loop, &wire->more);
}

static void on_stream_head(void *arg, struct http_transfer *transfer, int status)
{
    struct sse_wire *wire = arg;
    struct access *access = wire->upstream->spec.access;
    wire->status = status;
    wire->patience_ms = transport_patience(transfer, status);
    if (access && (status == 401 || status == 403))
        access_hear(access, transfer);
}

static bool on_stream_data(void *arg, struct span bytes)
{
    struct sse_wire *wire = arg;
    if (wire->status != 200)
        return false;
    if (intake_cover(&wire->intake, kept(wire) + bytes.len))
        return take(wire, bytes);
    buf_put_span(&wire->held, bytes);
    wire->waiting = true;
    http_pause(wire->stream);
    upstream_stop_clock(wire->upstream, NULL);
    return true;
}

static void on_stream_done(void *arg, const struct err *err)
{
    struct sse_wire *wire = arg;
    struct upstream *upstream = wire->upstream;
    struct err problem;
    wire->stream = NULL;
    if (wire->status == 401 && upstream->spec.access && !upstream->greeted_late) {
        upstream_on_greeted_late(upstream, wire->presented);
        return;
    }
    if (wire->status != 200 || !err) {
        bool login = wire->status == 401 && upstream->spec.access;
        (void)err_set(&problem,
                      wire->status == 200 ? ERR_UPSTREAM_DIED
                      : login             ? ERR_LOGIN
                                          : ERR_UNAVAILABLE,
                      "server \"%s\": the event stream ended (HTTP %d)", upstream->server->name, wire->status);
        problem.retry_after_ms = wire->patience_ms;
        err = &problem;
    }
    upstream_lose(upstream, err);
}

static const struct http_events post_events = {on_post_head, on_post_data, on_post_done, may_send, NULL};
static const struct http_events stream_events = {on_stream_head, on_stream_data, on_stream_done, NULL, NULL};

// ---- the transport --------------------------------------------------------------------------

static bool sse_start(struct upstream *upstream, struct err *err)
{
    (void)err;
    struct sse_wire *wire = mem_new(struct sse_wire);
    wire->upstream = upstream;
    wire->more = (struct loop_task){.run = on_more, .arg = wire, .name = "server events"};
    list_init(&wire->posts);
    sse_init(&wire->parser, upstream->spec.max_message);
    intake_open(&wire->intake, upstream, upstream->spec.memory, on_room, wire);
    wire->stream_target =
        http_target_new(upstream->spec.http, upstream->server->url, upstream->server->start_timeout_ms);
    http_target_trust(wire->stream_target, upstream->server->tls.ca_file);
    set_headers(upstream, wire->stream_target);
    present(wire, wire->stream_target);
    http_target_header(wire->stream_target, "Accept", "text/event-stream");
    upstream_assert(upstream, wire->stream_target, NULL);
    struct http_request spec = {.method = HTTP_GET, .events = &stream_events, .arg = wire};
    wire->stream = http_start(wire->stream_target, &spec);
    upstream->wire = wire;
    return true;
}

static void sse_send(struct upstream *upstream, struct blob *message, struct upstream_request *request)
{
    struct sse_wire *wire = upstream->wire;
    if (!wire)
        return;
    if (!request && wire->unasked >= TRANSPORT_UNASKED_MAX) {
        upstream_lose_deaf(upstream);
        return;
    }
    if (request && !request->text && upstream->spec.access)
        request->text = blob_ref(message);  // in case the token is refused
    if (wire->post_target)
        (void)post_message(wire, message, request);
    else if (request && request->initial)
        wire->hello = blob_ref(message);
}

static void sse_forget(struct upstream *upstream, struct upstream_request *request)
{
    (void)upstream;
    struct post *post = request->transfer;
    post->request = NULL;  // the POST itself may finish
    request->transfer = NULL;
}

static void sse_greet(struct upstream *upstream, struct blob *initialized)
{
    struct sse_wire *wire = upstream->wire;
    if (upstream->revision >= REVISION_2025_06_18)
        http_target_header(wire->post_target, "MCP-Protocol-Version", revision_text(upstream->revision));
    post_message(wire, initialized, NULL)->greeting = true;
}

static void wire_free(void *object)
{
    struct sse_wire *wire = object;
    sse_release(&wire->parser);
    buf_release(&wire->held);
    blob_unref(wire->hello);
    free(wire);
}

static void sse_release_wire(struct upstream *upstream)
{
    struct sse_wire *wire = upstream->wire;
    if (!wire)
        return;
    while (!list_empty(&wire->posts))
        post_end(list_entry(wire->posts.next, struct post, node));
    if (wire->stream)
        http_cancel(wire->stream);
    wire->stream = NULL;
    parsing_drop(wire->parsing);
    wire->parsing = NULL;
    intake_close(&wire->intake);
    upstream_start_clock(upstream, NULL);
    http_target_free(wire->stream_target);
    http_target_free(wire->post_target);
    upstream->wire = NULL;
    loop_task_drop(&wire->more);
    loop_reap(upstream->spec.loop, wire, wire_free);
}

static void sse_stop(struct upstream *upstream, int64_t within_ms)
{
    (void)within_ms;
    sse_release_wire(upstream);
    upstream_on_stopped(upstream);
}

const struct transport transport_sse = {
    .name = "sse",
    .start = sse_start,
    .send = sse_send,
    .forget = sse_forget,
    .greet = sse_greet,
    .stop = sse_stop,
    .release = sse_release_wire,
    .resume = sse_resume,
};
