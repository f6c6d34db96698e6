// Owns answers that are event streams: what the gate gives, formatted as the caller reads, with a sign of life in pauses.
#include "base/log.h"
#include "face.h"
#include "mcp/sse.h"
#include <inttypes.h>
#include <stdio.h>

#define BLOCK_1_0 ((size_t)16 << 10)
#define BLOCK 1  // not used: chunks are made in the memory of the connection
#define HEARTBEATS_A_TURN 256
#define EARLY 64  // the part of a pause by which it may end too soon
#define PULL_AHEAD ((size_t)256 << 10)

static void put_item(struct visit *visit, const struct stream_item *item)
{
    char id[48] = "";
    if (stream_resumable(visit->stream))
        snprintf(id, sizeof id, "%u-%" PRIu64, stream_index(visit->stream), item->sequence);
    if (!item->message) {  // priming: only an id, and how long to wait before coming back
        buf_printf(&visit->out, "id: %s\nretry: %lld\ndata: \n\n", id,
                   (long long)visit->face->config->timeouts.retry_ms);
        return;
    }
    if (item->message->at) {
        sse_put(&visit->out, span_of(id), span_of("message"), blob_span(item->message));
        return;
    }
    sse_put_head(&visit->out, span_of(id), span_of("message"));
    visit->large = blob_ref(item->message);
    visit->rest = (struct blob_reader){.blob = visit->large};
}

static void pull(struct visit *visit)
{
    struct stream_item item;
    visit->sent = 0;
    buf_clear(&visit->out);
    if (visit->out.room > PULL_AHEAD * 4)
        buf_release(&visit->out);
    while (!visit->large && visit->out.len < PULL_AHEAD && stream_pull(visit->stream, &item))
        put_item(visit, &item);
}

// What is formatted, and the message in parts behind it.
static size_t copy(struct visit *visit, char *to, size_t room)
{
    size_t len = visit->out.len - visit->sent < room ? visit->out.len - visit->sent : room;
    memcpy(to, visit->out.at + visit->sent, len);
    visit->sent += len;
    if (visit->sent < visit->out.len || !visit->large)
        return len;
    len += blob_read(&visit->rest, to + len, room - len);
    if (blob_rest(&visit->rest).len)
        return len;
    blob_unref(visit->large);
    visit->large = NULL;
    buf_put_text(&visit->out, SSE_END);
    return len;
}

// Without chunks the end of the stream is the end of the connection. The library marks such a connection closed and looks at
// it at the next event of its socket, which never comes if the caller is gone. It looks at connections that have a timeout of
// their own in every run.
static void free_after_end(struct visit *visit)
{
    MHD_set_connection_option(visit->connection, MHD_CONNECTION_OPTION_TIMEOUT, 1U);
    shard_touch(visit->caller->shard);
}

// From now until the stream is sent something again.
static void begin_pause(struct visit *visit)
{
    struct http_face *face = visit->face;
    visit->sent_ms = loop_now(face->loop);
    list_remove(&visit->beat);
    list_append(&face->streams, &visit->beat);
    if (!face->heartbeat.slot)
        loop_timer_set(face->loop, &face->heartbeat, face->config->timeouts.heartbeat_ms);
}

static ssize_t read_stream(void *arg, uint64_t position, char *to, size_t room)
{
    (void)position;
    struct visit *visit = arg;
    visit->caller->shard->active = true;
    if (visit->broken) {
        // The socket is shut down, so writing fails and the library frees the connection. MHD_CONTENT_READER_END_WITH_ERROR
        // would mark it closed and forget it, with its descriptor.
        *to = '\n';
        return 1;
    }
    if (visit->sent == visit->out.len && !visit->large)
        pull(visit);
    if (visit->out.len == 0) {
        if (stream_over(visit->stream)) {
            if (visit->http_1_0)
                free_after_end(visit);
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        buf_release(&visit->out);  // an idle stream takes little memory
        visit_suspend(visit);
        return 0;
    }
    size_t len = copy(visit, to, room);
    begin_pause(visit);
    return (ssize_t)len;
}

// All pauses may be of the same length, so a list is in the order in which they end, and one timer is enough. Those that end
// soon are ended at once: it costs less to wake up for many.
void visit_on_heartbeat(struct loop_timer *timer)
{
    struct http_face *face = timer->arg;
    int64_t pause = face->config->timeouts.heartbeat_ms, now = loop_now(face->loop);
    for (int i = 0; !list_empty(&face->streams); i++) {
        struct visit *visit = list_entry(face->streams.next, struct visit, beat);
        int64_t left = visit->sent_ms + pause - now;
        if (i == HEARTBEATS_A_TURN || left > pause / EARLY) {
            loop_timer_set(face->loop, timer, left);
            return;
        }
        begin_pause(visit);
        if (!visit->suspended)
            continue;  // it is busy sending, or the caller does not read
        buf_put_text(&visit->out, ": keepalive\n\n");
        visit_resume(visit);
    }
}

static void on_wake(void *arg) { visit_resume(arg); }

// Ends a stream's connection from our side.
static void on_cut(void *arg)
{
    struct visit *visit = arg;
    caller_close(visit->caller);
}

void visit_on_stream(struct arrival *arrival, struct stream *stream, const char *session_id)
{
    struct visit *visit = arrival->arg;
    struct stream_sink sink = {on_wake, on_cut, visit};
    struct err err;
    visit->state = VISIT_STREAMING;
    visit->stream = stream_ref(stream);
    if (visit->endpoint && session_id) {
        snprintf(visit->session_id, sizeof visit->session_id, "%s", session_id);
        buf_put_text(&visit->out, "event: endpoint\ndata: ");
        if (visit->endpoint == ENDPOINT_MCP)
            visit_put_path(visit, &visit->out);
        else
            buf_put_text(&visit->out, "/messages");
        buf_printf(&visit->out, "?sessionId=%s\n\n", session_id);
    }
    stream_attach(stream, &sink);
    if (!loop_watch(visit->face->loop, &visit->caller->hangup, LOOP_HANGUP | LOOP_ONCE, &err))
        log_warn("cannot watch a connection for hang-up", LOG_STR("detail", err.detail));
    visit_resume(visit);
}

enum MHD_Result visit_send_stream(struct visit *visit)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, visit->http_1_0 ? BLOCK_1_0 : BLOCK, read_stream, visit, NULL);
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-cache, no-transform");
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    visit_add_cors(visit, response);
    begin_pause(visit);
    return visit_queue(visit, 200, response);
}
