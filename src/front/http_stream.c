// Owns answers that are event streams: messages of the gate, formatted as fast as the caller reads, and heartbeats in pauses.
#include "base/log.h"
#include "face.h"
#include "mcp/sse.h"
#include <inttypes.h>
#include <stdio.h>

#define BLOCK_1_0 ((size_t)16 << 10)
#define BLOCK 1  // unused by the library: it makes chunks in the memory of the connection
#define HEARTBEATS_A_TURN 256
#define EARLY 64  // a pause may end early by 1/64 of its length
#define PULL_AHEAD ((size_t)256 << 10)

static void put_item(struct http_exchange *exchange, const struct stream_item *item)
{
    char id[48] = "";
    if (stream_resumable(exchange->stream))
        snprintf(id, sizeof id, "%u-%" PRIu64, stream_index(exchange->stream), item->sequence);
    if (!item->message) {  // priming: only an id, and how long to wait before reconnecting
        buf_printf(&exchange->out, "id: %s\nretry: %lld\ndata: \n\n", id,
                   (long long)exchange->face->config.timeouts->retry_ms);
        return;
    }
    if (item->message->at) {
        sse_put(&exchange->out, span_of(id), span_of("message"), blob_span(item->message));
        return;
    }
    sse_put_head(&exchange->out, span_of(id), span_of("message"));
    exchange->large = blob_ref(item->message);
    exchange->rest = (struct blob_reader){.blob = exchange->large};
}

static void pull(struct http_exchange *exchange)
{
    struct stream_item item;
    exchange->sent = 0;
    buf_clear(&exchange->out);
    if (exchange->out.room > PULL_AHEAD * 4)
        buf_release(&exchange->out);
    while (!exchange->large && exchange->out.len < PULL_AHEAD && stream_pull(exchange->stream, &item))
        put_item(exchange, &item);
}

// Copies the formatted bytes, then the large message that follows them.
static size_t copy(struct http_exchange *exchange, char *to, size_t room)
{
    size_t len = exchange->out.len - exchange->sent < room ? exchange->out.len - exchange->sent : room;
    memcpy(to, exchange->out.at + exchange->sent, len);
    exchange->sent += len;
    if (exchange->sent < exchange->out.len || !exchange->large)
        return len;
    len += blob_read(&exchange->rest, to + len, room - len);
    if (blob_rest(&exchange->rest).len)
        return len;
    blob_unref(exchange->large);
    exchange->large = NULL;
    buf_put_text(&exchange->out, SSE_END);
    return len;
}

// Without chunks (HTTP/1.0) the end of the stream is the end of the connection. The library marks such a connection closed
// and frees it at the next event of its socket, which never comes if the caller has disconnected. Connections with a timeout
// of their own are checked in every run.
static void free_after_end(struct http_exchange *exchange)
{
    MHD_set_connection_option(exchange->connection, MHD_CONNECTION_OPTION_TIMEOUT, 1U);
    shard_touch(exchange->caller->shard);
}

// The pause begins now and ends when the stream is sent something.
static void begin_pause(struct http_exchange *exchange)
{
    struct http_face *face = exchange->face;
    exchange->sent_ms = loop_now(face->loop);
    list_remove(&exchange->beat);
    list_append(&face->streams, &exchange->beat);
    if (!face->heartbeat.slot)
        loop_timer_set(face->loop, &face->heartbeat, face->config.timeouts->heartbeat_ms);
}

static ssize_t read_stream(void *arg, uint64_t position, char *to, size_t room)
{
    (void)position;
    struct http_exchange *exchange = arg;
    exchange->caller->shard->active = true;
    if (exchange->broken) {
        // The socket is shut down, so writing fails and the library frees the connection. After
        // MHD_CONTENT_READER_END_WITH_ERROR it would mark the connection closed and leak it, with its descriptor.
        *to = '\n';
        return 1;
    }
    if (exchange->sent == exchange->out.len && !exchange->large)
        pull(exchange);
    if (exchange->out.len == 0) {
        if (stream_over(exchange->stream)) {
            if (exchange->http_1_0)
                free_after_end(exchange);
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        buf_release(&exchange->out);  // an idle stream should take little memory
        http_exchange_suspend(exchange);
        return 0;
    }
    size_t len = copy(exchange, to, room);
    begin_pause(exchange);
    return (ssize_t)len;
}

// All pauses have the same maximum length, so the list is in the order in which they end, and one timer is enough. Pauses that
// end soon are ended now: one wake-up for many streams costs less.
void http_stream_on_heartbeat(struct loop_timer *timer)
{
    struct http_face *face = timer->arg;
    int64_t pause = face->config.timeouts->heartbeat_ms, now = loop_now(face->loop);
    for (int i = 0; !list_empty(&face->streams); i++) {
        struct http_exchange *exchange = list_entry(face->streams.next, struct http_exchange, beat);
        int64_t left = exchange->sent_ms + pause - now;
        if (i == HEARTBEATS_A_TURN || left > pause / EARLY) {
            loop_timer_set(face->loop, timer, left);
            return;
        }
        begin_pause(exchange);
        if (!exchange->suspended)
            continue;  // the stream is sending, or the caller does not read
        buf_put_text(&exchange->out, ": keepalive\n\n");
        http_exchange_resume(exchange);
    }
}

static void on_wake(void *arg) { http_exchange_resume(arg); }

static void on_cut(void *arg)
{
    struct http_exchange *exchange = arg;
    caller_close(exchange->caller);
}

void http_stream_on_stream(struct arrival *arrival, struct stream *stream, const char *session_id)
{
    struct http_exchange *exchange = arrival->arg;
    struct stream_sink sink = {on_wake, on_cut, exchange};
    struct err err;
    http_exchange_set_state(exchange, EXCHANGE_STREAMING);
    exchange->stream = stream_ref(stream);
    if (exchange->endpoint && session_id) {
        snprintf(exchange->session_id, sizeof exchange->session_id, "%s", session_id);
        buf_put_text(&exchange->out, "event: endpoint\ndata: ");
        if (exchange->endpoint == ENDPOINT_MCP)
            http_path_put(exchange, &exchange->out);
        else
            buf_put_text(&exchange->out, "/messages");
        buf_printf(&exchange->out, "?sessionId=%s\n\n", session_id);
    }
    stream_attach(stream, &sink);
    if (!loop_watch(exchange->face->loop, &exchange->caller->hangup, LOOP_HANGUP | LOOP_ONCE, &err))
        log_warn("cannot watch a connection for hang-up", LOG_STR("detail", err.detail));
    http_exchange_resume(exchange);
}

enum MHD_Result http_stream_send(struct http_exchange *exchange)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, exchange->http_1_0 ? BLOCK_1_0 : BLOCK, read_stream, exchange, NULL);
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-cache, no-transform");
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    http_answer_add_cors(exchange, response);
    begin_pause(exchange);
    return http_answer_queue(exchange, 200, response);
}
