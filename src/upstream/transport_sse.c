// Owns the HTTP+SSE transport (2024-11-05) towards a server: one GET stream, and messages POSTed to the
// endpoint that the stream names. An endpoint of another origin is refused, because it would receive the
// configured headers and the token.
//
// A token that the server refuses is renewed once: for a message, which is POSTed again, or for the stream, which is opened
// again and the handshake with it (tests/e2e/oauth/sse.test.mjs).
#include "base/mem.h"
#include "incoming.h"
#include "loop/http_url.h"
#include "renewal.h"
#include "request.h"
#include "transport.h"
#include <stdlib.h>

struct sse_wire {
    struct upstream *upstream;
    struct http_target *stream_target, *post_target;
    struct incoming stream;
    struct loop_timer idle;  // until a ping is sent; not set without a limit
    int status;
    int64_t patience_ms;  // transport_hear()
    unsigned presented;   // the version of the token that the stream was opened with
    struct list posts;
    struct blob *hello;  // initialize, until the endpoint is known
    unsigned unasked;    // POSTs that no request waits for
};

struct post {
    struct sse_wire *wire;
    struct list node;
    struct upstream_request *request;
    struct http_transfer *transfer;
    int status;
    int64_t patience_ms;  // transport_hear()
    unsigned presented;   // the version of the token that it was sent with
    bool greeting;
    bool unasked;  // no request waits for it
};

static const struct http_events post_events, stream_events;
static const struct incoming_owner stream_owner;

static void post_end(struct post *post)
{
    if (post->transfer)
        http_transfer_cancel(post->transfer);
    if (post->request)
        post->request->transfer = NULL;
    if (post->unasked)
        post->wire->unasked--;
    list_remove(&post->node);
    loop_reap(post->wire->upstream->spec.loop, post, free);
}

// ---- POST -----------------------------------------------------------------------------------

static void on_post_head(void *arg, struct http_transfer *transfer, int status)
{
    struct post *post = arg;
    transport_note_byte(post->wire->upstream);
    post->status = status;
    post->patience_ms = transport_hear(post->wire->upstream, transfer, status);
}

static bool on_post_data(void *arg, struct span bytes)
{
    (void)arg;
    (void)bytes;
    return true;
}

// True: the token was refused, and the message is sent again with another one.
static bool renews(struct upstream *upstream, struct upstream_request *request, bool greeting, unsigned presented)
{
    if (request && !upstream_request_retried(request, UPSTREAM_RETRY_TOKEN) && request->text)
        renewal_on_refused(request, UPSTREAM_RETRY_TOKEN, presented);
    else if (greeting && !upstream->greeted_late)
        upstream->events->on_greeted_late(upstream, presented);
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
    bool unsent = err && http_transfer_unsent(post->transfer);
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
    if (unsent && request && transport_unreachable(upstream, request, upstream->in_flight.count > 1, err))
        return;
    if (err && request)
        upstream_request_fail(request, err);
    if (greeting && err)
        transport_lose(upstream, err);
    else if (greeting)
        upstream->events->on_ready(upstream);
}

static bool may_send(void *arg)
{
    struct post *post = arg;
    struct upstream_request *request = post->request;
    struct err err = {0};
    if (post->unasked || (request && upstream_request_may_send(request, &err)))
        return true;
    post_end(post);
    if (request)  // otherwise it was cancelled before it was sent
        upstream_request_fail(request, &err);
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
    struct http_request spec = {.method = HTTP_POST,
                                .timeout_ms = wire->upstream->server->timeout_ms,
                                .urgent = !request,
                                .events = &post_events,
                                .arg = post};
    transport_set_body(&spec, message);
    post->presented = transport_present(wire->upstream, wire->post_target);
    transport_put_assertion(wire->upstream, wire->post_target, request);
    post->transfer = http_transfer_start(wire->post_target, &spec);
    return post;
}

// ---- the stream -----------------------------------------------------------------------------

static void take_endpoint(struct sse_wire *wire, struct span data)
{
    struct upstream *upstream = wire->upstream;
    char *reference = mem_span(data);
    char *url = http_url_resolve(upstream->server->url, reference);
    if (!url || !http_url_same_origin(upstream->server->url, url)) {
        struct err err;
        (void)err_set(&err, ERR_UPSTREAM_INVALID, "server \"%s\" names an endpoint of another origin: %.200s",
                      upstream->server->name, reference);
        transport_lose(upstream, &err);
    } else if (!wire->post_target) {
        wire->post_target = transport_target(upstream, url);
        http_target_header(wire->post_target, "Content-Type", "application/json");
        if (upstream->revision >= REVISION_2025_06_18)
            http_target_header(wire->post_target, "MCP-Protocol-Version", revision_text(upstream->revision));
        if (wire->hello)
            (void)post_message(wire, wire->hello, upstream->hello.upstream ? &upstream->hello : NULL);
    }
    free(reference);
    free(url);
}

static bool on_stream_event(void *arg, const struct sse_event *event)
{
    if (!span_is(event->type, "endpoint"))
        return false;
    take_endpoint(arg, event->data);
    return true;
}

static void sse_resume(struct upstream *upstream)
{
    struct sse_wire *wire = upstream->wire;
    incoming_resume(&wire->stream);
}

static void on_stream_head(void *arg, struct http_transfer *transfer, int status)
{
    struct sse_wire *wire = arg;
    wire->status = status;
    wire->patience_ms = transport_hear(wire->upstream, transfer, status);
}

static void watch_idle(struct sse_wire *wire)
{
    struct upstream *upstream = wire->upstream;
    if (upstream->server->idle_stream_timeout_ms)
        loop_timer_set(upstream->spec.loop, &wire->idle, upstream->server->idle_stream_timeout_ms);
}

static void on_idle(struct loop_timer *timer)
{
    struct sse_wire *wire = timer->arg;
    watch_idle(wire);
    wire->upstream->events->on_idle(wire->upstream);
}

static bool on_stream_data(void *arg, struct span bytes)
{
    struct sse_wire *wire = arg;
    transport_note_byte(wire->upstream);
    watch_idle(wire);
    return wire->status == 200 && incoming_take(&wire->stream, bytes);
}

static void on_stream_done(void *arg, const struct err *err)
{
    struct sse_wire *wire = arg;
    struct upstream *upstream = wire->upstream;
    struct err problem;
    wire->stream.transfer = NULL;
    if (wire->status == 401 && upstream->spec.access && !upstream->greeted_late) {
        upstream->events->on_greeted_late(upstream, wire->presented);
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
    transport_lose(upstream, err);
}

static const struct http_events post_events = {on_post_head, on_post_data, on_post_done, may_send, NULL};
static const struct http_events stream_events = {on_stream_head, on_stream_data, on_stream_done, NULL, NULL};
static const struct incoming_owner stream_owner = {.on_done = on_stream_done, .on_event = on_stream_event};

// ---- the transport --------------------------------------------------------------------------

static bool sse_start(struct upstream *upstream, struct err *err)
{
    (void)err;
    struct sse_wire *wire = mem_new(struct sse_wire);
    wire->upstream = upstream;
    list_init(&wire->posts);
    wire->stream = (struct incoming){.owner = &stream_owner, .arg = wire, .shared = true, .events = true};
    incoming_open(&wire->stream, upstream, upstream->spec.memory);
    wire->stream_target = transport_target(upstream, upstream->server->url);
    wire->presented = transport_present(upstream, wire->stream_target);
    http_target_header(wire->stream_target, "Accept", "text/event-stream");
    transport_put_assertion(upstream, wire->stream_target, NULL);
    struct http_request spec = {.method = HTTP_GET, .events = &stream_events, .arg = wire};
    wire->stream.transfer = http_transfer_start(wire->stream_target, &spec);
    wire->idle = (struct loop_timer){.on_due = on_idle, .arg = wire, .name = "idle stream"};
    watch_idle(wire);
    upstream->wire = wire;
    return true;
}

static void sse_send(struct upstream *upstream, struct blob *message, struct upstream_request *request)
{
    struct sse_wire *wire = upstream->wire;
    if (!wire)
        return;
    if (!request && wire->unasked >= TRANSPORT_UNASKED_MAX) {
        transport_lose_deaf(upstream);
        return;
    }
    if (request && !request->text)
        request->text = blob_ref(message);  // in case the token is refused, or it cannot be sent
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
    incoming_release(&wire->stream);
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
    incoming_close(&wire->stream);
    loop_timer_stop(upstream->spec.loop, &wire->idle);
    http_target_free(wire->stream_target);
    http_target_free(wire->post_target);
    upstream->wire = NULL;
    loop_reap(upstream->spec.loop, wire, wire_free);
}

static void sse_stop(struct upstream *upstream, int64_t within_ms)
{
    (void)within_ms;
    sse_release_wire(upstream);
    upstream->events->on_stopped(upstream);
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
