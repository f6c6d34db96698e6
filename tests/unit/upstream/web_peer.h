// An HTTP server on the loop of the test, and an upstream that uses it, for the tests of the HTTP transports.
//
// The server passes each whole request to `on_request`, which answers with web_answer() or web_stream(). "$ID" in a text stands
// for the id of the JSON-RPC request.
#ifndef WEB_PEER_H
#define WEB_PEER_H

#include "listen.h"
#include "transport.h"
#include "unit.h"
#include <sys/socket.h>
#include <unistd.h>

#define WEB_WAIT_MS 20000
#define WEB_CONNECTIONS 32
#define WEB_SESSION "Mcp-Session-Id: s1\r\n"
#define WEB_STREAM_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
#define WEB_HELLO                                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"protocolVersion\":\"2025-11-25\"," \
    "\"capabilities\":{\"tools\":{\"listChanged\":true}},\"serverInfo\":{\"name\":\"web\"}}}"
#define WEB_RESULT "{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"n\":1.0}}"

struct web_ask {
    struct upstream_request request;
    int replies;
    enum err_code failure;
    int64_t retry_after_ms;
    char detail[512], result[256], error[256];
    size_t result_len;
};

struct web {
    struct loop *loop;
    struct http_client *http;
    struct server server;
    char url[64];
    struct upstream *upstream;
    struct loop_watch listener, peers[WEB_CONNECTIONS];
    struct buf texts[WEB_CONNECTIONS];  // the bytes received on each connection
    size_t accepted;
    struct loop_timer patience;
    // Answers the request with this head and body on the connection `fd`.
    void (*on_request)(struct web *web, int fd, struct span head, struct span body);
    int requests, replies, stop_at, notifications;
    bool of_request;  // the last notification arrived on the stream of a request
    bool stop_ready, stop_down, closed;
    int stream;  // the descriptor of a stream that stays open, or 0
    int step;    // for the script of the test
};

// ---- the server -----------------------------------------------------------------------------

static inline uint64_t web_id(struct span body)
{
    const char *at = memmem(body.at, body.len, "\"id\":", 5);
    return at ? strtoull(at + 5, NULL, 10) : 0;
}

static inline void web_put(int fd, const char *text, uint64_t id)
{
    struct buf out = {0};
    for (const char *at = text; *at; at++) {
        if (strncmp(at, "$ID", 3) == 0) {
            buf_put_int(&out, (int64_t)id);
            at += 2;
        } else {
            buf_put_char(&out, *at);
        }
    }
    for (size_t sent = 0; sent < out.len;) {
        ssize_t count = send(fd, out.at + sent, out.len - sent, MSG_NOSIGNAL);
        assert_true(count > 0);
        sent += (size_t)count;
    }
    buf_release(&out);
}

// Writes a whole response. Ids have one digit here, so each "$ID" in the body makes it two bytes shorter.
static inline void web_answer(int fd, const char *status, const char *headers, const char *body, uint64_t id)
{
    size_t len = strlen(body);
    struct buf head = {0};
    assert_true(id < 10);
    for (const char *at = body; (at = strstr(at, "$ID")); at++)
        len -= 2;
    buf_printf(&head, "HTTP/1.1 %s\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n", status, headers,
               len);
    web_put(fd, buf_text(&head), 0);
    web_put(fd, body, id);
    buf_release(&head);
}

static inline void web_hang_up(struct web *web, int fd)
{
    for (size_t i = 0; i < web->accepted; i++) {
        if (web->peers[i].fd != fd)
            continue;
        loop_unwatch(web->loop, &web->peers[i]);
        web->peers[i].fd = -1;
        close(fd);
    }
}

static inline bool web_has(struct span text, const char *part)
{
    return memmem(text.at, text.len, part, strlen(part)) != NULL;
}

static inline void web_on_peer(struct loop_watch *peer, unsigned events)
{
    (void)events;
    struct web *web = peer->arg;
    struct buf *text = &web->texts[peer - web->peers];
    char bytes[65536];
    ssize_t count = recv(peer->fd, bytes, sizeof bytes, 0);
    if (count <= 0) {
        web_hang_up(web, peer->fd);
        return;
    }
    buf_put(text, bytes, (size_t)count);
    const char *end = memmem(text->at, text->len, "\r\n\r\n", 4);
    if (!end)
        return;
    struct span head = span_make(text->at, (size_t)(end + 4 - text->at));
    const char *length = memmem(head.at, head.len, "Content-Length: ", 16);
    size_t wanted = length ? strtoul(length + 16, NULL, 10) : 0;
    if (text->len < head.len + wanted)
        return;
    struct buf whole = *text;
    *text = (struct buf){0};
    web->requests++;
    web->on_request(web, peer->fd, head, span_make(whole.at + head.len, wanted));
    buf_release(&whole);
}

static inline void web_on_accept(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct web *web = watch->arg;
    struct err err;
    assert_true(web->accepted < WEB_CONNECTIONS);
    struct loop_watch *peer = &web->peers[web->accepted++];
    *peer = (struct loop_watch){.fd = accept(watch->fd, NULL, NULL), .on_ready = web_on_peer, .arg = web};
    assert_true(peer->fd >= 0 && loop_watch(web->loop, peer, LOOP_READ, &err));
}

// ---- the upstream ---------------------------------------------------------------------------

static inline void web_on_state(void *arg, struct upstream *upstream)
{
    struct web *web = arg;
    enum upstream_state state = upstream_state(upstream);
    if ((state == UPSTREAM_READY && web->stop_ready) ||
        ((state == UPSTREAM_BACKOFF || state == UPSTREAM_DOWN) && web->stop_down))
        loop_stop(web->loop);
}

static inline void web_on_notification(void *arg, struct upstream *upstream, const struct message *message,
                                       struct upstream_request *origin)
{
    (void)upstream;
    (void)message;
    struct web *web = arg;
    web->notifications++;
    web->of_request = origin != NULL;
}

static inline void web_on_asked(void *arg, struct upstream *upstream, const struct message *message,
                                struct upstream_request *origin)
{
    (void)arg;
    (void)origin;
    upstream_message_refuse(upstream, message->id, -32601, "no");
}

static inline void web_on_impatient(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("nothing happened for %d ms", WEB_WAIT_MS);
}

static const struct upstream_listener web_listener = {
    .on_state = web_on_state, .on_notification = web_on_notification, .on_request = web_on_asked};

static inline void web_set_up(struct web *web, int type, size_t max_message,
                              void (*on_request)(struct web *web, int fd, struct span head, struct span body))
{
    struct err err;
    unsigned port;
    *web = (struct web){.loop = loop_new(&err), .on_request = on_request};
    web->http = http_client_new(web->loop, &err);
    assert_non_null(web->http);
    web->listener = (struct loop_watch){.fd = listen_on_loopback(&port), .on_ready = web_on_accept, .arg = web};
    assert_true(loop_watch(web->loop, &web->listener, LOOP_READ, &err));
    snprintf(web->url, sizeof web->url, "http://127.0.0.1:%u/mcp", port);
    web->server = (struct server){.name = "web",
                                  .type = type,
                                  .url = web->url,
                                  .timeout_ms = 15000,
                                  .max_timeout_ms = 15000,
                                  .start_timeout_ms = 15000,
                                  .connect_timeout_ms = 15000};
    web->patience = (struct loop_timer){.on_due = web_on_impatient};
    loop_timer_set(web->loop, &web->patience, WEB_WAIT_MS);
    web->upstream = upstream_new(&(struct upstream_spec){.loop = web->loop,
                                                         .http = web->http,
                                                         .server = &web->server,
                                                         .capabilities = "{}",
                                                         .max_message = max_message,
                                                         .listener = &web_listener,
                                                         .arg = web});
}

static inline void web_make_ready(struct web *web)
{
    web->stop_ready = true;
    upstream_start(web->upstream);
    while (upstream_state(web->upstream) != UPSTREAM_READY)
        loop_run(web->loop);
    web->stop_ready = false;
}

static inline void web_await_down(struct web *web)
{
    web->stop_down = true;
    while (upstream_state(web->upstream) == UPSTREAM_READY || upstream_state(web->upstream) == UPSTREAM_STARTING)
        loop_run(web->loop);
    web->stop_down = false;
}

static inline void web_on_reply(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct web_ask *ask = (struct web_ask *)(void *)request;
    struct web *web = request->arg;
    ask->replies++;
    if (reply->failure) {
        ask->failure = reply->failure->code;
        ask->retry_after_ms = reply->failure->retry_after_ms;
        snprintf(ask->detail, sizeof ask->detail, "%s", reply->failure->detail);
    } else {
        ask->retry_after_ms = reply->retry_after_ms;
    }
    ask->result_len = reply->result.len;
    snprintf(ask->result, sizeof ask->result, "%.*s", reply->result.len < 200 ? (int)reply->result.len : 0,
             reply->result.at ? reply->result.at : "");
    snprintf(ask->error, sizeof ask->error, "%.*s", SPAN_ARG(reply->error));
    if (++web->replies == web->stop_at)
        loop_stop(web->loop);
}

// Sends a request and waits for its reply.
static inline void web_call(struct web *web, struct web_ask *ask)
{
    *ask = (struct web_ask){.request = {.on_reply = web_on_reply, .arg = web}};
    upstream_request_reserve(web->upstream, &ask->request);
    upstream_request_send(&ask->request, "echo", SPAN("{}"));
    web->stop_at = web->replies + 1;
    while (web->replies < web->stop_at)
        loop_run(web->loop);
    assert_int_equal(ask->replies, 1);
}

static inline void web_on_closed(void *arg, struct upstream *upstream)
{
    struct web *web = arg;
    upstream_free(upstream);
    web->closed = true;
    loop_stop(web->loop);
}

static inline void web_tear_down(struct web *web)
{
    upstream_close(web->upstream, 3000, web_on_closed, web);
    while (!web->closed)
        loop_run(web->loop);
    http_client_free(web->http);
    loop_timer_stop(web->loop, &web->patience);
    for (size_t i = 0; i < web->accepted; i++) {
        if (web->peers[i].fd >= 0)
            web_hang_up(web, web->peers[i].fd);
        buf_release(&web->texts[i]);
    }
    loop_unwatch(web->loop, &web->listener);
    close(web->listener.fd);
    loop_free(web->loop);
}

#endif
