// Owns reading the response of one HTTP transfer: events in slices, or a body, within the budget.
//
// Three conditions stop it (is_held): a large message that is being parsed, a pause of the upstream, and an exhausted budget. Then
// the transfer is paused, and bytes that have already arrived wait in `held`. The same happens after a slice, until the next turn.
// Guarded by tests/unit/upstream/transport_http_test.c and transport_sse_test.c.
#include "incoming.h"
#include "message.h"
#include "receive.h"
#include "request.h"

// Events of one stream that are delivered in a turn, so that a busy server does not delay the others.
#define EVENTS_A_TURN 128
#define RESERVE_MAX ((size_t)1 << 20)

static void on_more(struct loop_task *task);

static void start_clock(struct incoming *incoming)
{
    if (incoming->request || incoming->shared)
        upstream_request_start_clock(incoming->upstream, incoming->request);
}

static void on_room(void *arg)
{
    struct incoming *incoming = arg;
    start_clock(incoming);
    loop_task_put(incoming->upstream->spec.loop, &incoming->more);
}

void incoming_open(struct incoming *incoming, struct upstream *upstream, struct budget *memory)
{
    incoming->upstream = upstream;
    incoming->more = (struct loop_task){.run = on_more, .arg = incoming, .name = "server events"};
    incoming->body.max = upstream->spec.max_message;
    sse_init(&incoming->parser, upstream->spec.max_message);
    intake_open(&incoming->intake, upstream, memory, on_room, incoming);
}

void incoming_restart(struct incoming *incoming)
{
    sse_restart(&incoming->parser);
    buf_clear(&incoming->held);
    incoming->waiting = false;
}

void incoming_close(struct incoming *incoming)
{
    if (incoming->transfer)
        http_transfer_cancel(incoming->transfer);
    incoming->transfer = NULL;
    parsing_drop(incoming->parsing);
    incoming->parsing = NULL;
    intake_close(&incoming->intake);
    start_clock(incoming);
    loop_task_drop(&incoming->more);
}

void incoming_release(struct incoming *incoming)
{
    sse_release(&incoming->parser);
    buf_release(&incoming->body);
    buf_release(&incoming->held);
}

// The bytes of the response in memory.
static size_t kept(const struct incoming *incoming)
{
    return incoming->body.len + incoming->held.len + incoming->parser.data.len + incoming->parser.line.len;
}

// Takes memory for so many bytes in all from the budget. False: nothing more is read until the budget has them.
static bool find_room(struct incoming *incoming, size_t bytes)
{
    if (intake_cover(&incoming->intake, bytes))
        return true;
    incoming->waiting = true;
    http_transfer_pause(incoming->transfer);
    if (incoming->request || incoming->shared)
        upstream_request_stop_clock(incoming->upstream, incoming->request);
    return false;
}

void incoming_expect(struct incoming *incoming, size_t bytes)
{
    if (bytes < RESERVE_MAX)
        buf_reserve(&incoming->body, bytes);
    if (bytes <= incoming->body.max)
        (void)find_room(incoming, bytes);
}

// The wire of a server that is being given up is freed at the end of the turn, so nothing more is read from it.
static bool is_held(const struct incoming *incoming)
{
    return incoming->parsing || incoming->upstream->paused || incoming->upstream->losing ||
           intake_waits(&incoming->intake);
}

// ---- events ---------------------------------------------------------------------------------

static void on_stray(struct incoming *incoming, struct span data)
{
    struct message message;
    struct err err;
    if (data.len <= MESSAGE_LARGE && message_parse(data, false, &message, &err) && message.kind == MESSAGE_REQUEST)
        upstream_message_refuse(incoming->upstream, message.id, -32603, "the related request has ended");
}

static void on_parsed(void *arg, struct parsing *parsing);

static void on_event(struct incoming *incoming, const struct sse_event *event)
{
    if (incoming->stray) {
        on_stray(incoming, event->data);
    } else if (incoming->owner->on_event && incoming->owner->on_event(incoming->arg, event)) {
        return;
    } else if (!event->data.len || !span_is(event->type, "message")) {
        return;
    } else if (event->data.len > MESSAGE_LARGE) {
        struct blob *text = sse_take(&incoming->parser);
        intake_hand_over(&incoming->intake, text);
        http_transfer_pause(incoming->transfer);
        incoming->parsing = parsing_start(incoming->upstream, text, event->data, on_parsed, incoming);
    } else {
        intake_deliver(&incoming->intake, event->data, NULL, incoming->request);
    }
}

// Delivers the events of a slice; the rest waits in `held`. False: the transfer was cancelled.
static bool feed(struct incoming *incoming, struct span bytes)
{
    struct sse_event event;
    for (int left = EVENTS_A_TURN; !is_held(incoming) && left > 0; left--) {
        enum sse_status status = sse_next(&incoming->parser, &bytes, &event);
        if (status == SSE_MORE)
            return true;
        if (status == SSE_EVENT)
            on_event(incoming, &event);
        else if (!incoming->stray)
            receive_dropped(incoming->upstream, event.data, incoming->parser.data.no_memory, incoming->request);
        if (!incoming->transfer)
            return false;
    }
    buf_put_span(&incoming->held, bytes);
    incoming->waiting = true;
    http_transfer_pause(incoming->transfer);
    if (!is_held(incoming))
        loop_task_put_later(incoming->upstream->spec.loop, &incoming->more);
    return true;
}

// ---- bytes ----------------------------------------------------------------------------------

// False: the transfer was cancelled, or the body is too large.
static bool take(struct incoming *incoming, struct span bytes)
{
    bool more = true;
    if (incoming->events)
        more = feed(incoming, bytes);
    else if (bytes.at == incoming->body.at + incoming->body.len)  // was read into incoming_body_room()
        incoming->body.len += bytes.len;
    else
        buf_put_span(&incoming->body, bytes);
    if (incoming->transfer)
        intake_keep(&incoming->intake, incoming->events ? kept(incoming) : SIZE_MAX);
    return more && !incoming->body.overflow;
}

bool incoming_take(struct incoming *incoming, struct span bytes)
{
    if (find_room(incoming, kept(incoming) + bytes.len))
        return take(incoming, bytes);
    buf_put_span(&incoming->held, bytes);
    return true;
}

char *incoming_body_room(struct incoming *incoming, size_t bytes)
{
    const struct buf *body = &incoming->body;
    bool fits = bytes < body->room - body->len && bytes <= body->max - body->len;
    return fits && !incoming->events ? body->at + body->len : NULL;
}

static void go_on(struct incoming *incoming)
{
    struct buf held = incoming->held;
    incoming->held = (struct buf){0};
    incoming->waiting = false;
    bool more = take(incoming, buf_span(&held));
    buf_release(&held);
    if (!incoming->transfer || incoming->waiting)
        return;
    if (more) {
        http_transfer_resume(incoming->transfer);
        return;
    }
    struct err err;
    (void)err_set(&err, ERR_UPSTREAM_TRANSPORT, "server \"%s\" sent an answer that is too large",
                  incoming->upstream->server->name);
    http_transfer_cancel(incoming->transfer);
    incoming->owner->on_done(incoming->arg, &err);
}

static void on_more(struct loop_task *task)
{
    struct incoming *incoming = task->arg;
    if (incoming->waiting && incoming->transfer && !is_held(incoming))
        go_on(incoming);
}

// Continues with the stream behind a large message.
static void on_parsed(void *arg, struct parsing *parsing)
{
    struct incoming *incoming = arg;
    incoming->parsing = NULL;
    if (!incoming->stray)
        receive_parsed(incoming->upstream, parsing, incoming->request);
    if (incoming->transfer && !is_held(incoming))
        go_on(incoming);
}

void incoming_resume(struct incoming *incoming)
{
    if (incoming->waiting)
        loop_task_put(incoming->upstream->spec.loop, &incoming->more);
}
