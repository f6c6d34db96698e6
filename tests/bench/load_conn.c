/* load_conn.c: one keep-alive connection of the load generator, and its MCP session. */
#include "load_conn.h"

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { LOAD_CONN_READ = 128 * 1024 };

bool load_conn_open(struct load_conn *c, const struct load_options *o)
{
    c->in.len = c->out.len = c->sent = 0;
    c->fd = socket(o->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return false;
    if (connect(c->fd, (const struct sockaddr *)&o->address, o->address_len) < 0) {
        load_conn_close(c);
        return false;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    return true;
}

void load_conn_close(struct load_conn *c)
{
    close(c->fd);
    c->fd = -1;
    c->busy = false;
}

void load_conn_post(struct load_conn *c, const struct buf *body)
{
    buf_append(&c->out, c->head.data, c->head.len);
    buf_number(&c->out, body->len);
    buf_text(&c->out, "\r\n\r\n");
    buf_append(&c->out, body->data, body->len);
}

enum load_conn_io load_conn_flush(struct load_conn *c)
{
    while (c->sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? LOAD_CONN_AGAIN : LOAD_CONN_FAILED;
        c->sent += (size_t)n;
    }
    c->out.len = c->sent = 0;
    return LOAD_CONN_DONE;
}

enum load_conn_io load_conn_receive(struct load_conn *c, struct http1_message *m)
{
    for (;;) {
        ssize_t n = recv(c->fd, buf_room(&c->in, LOAD_CONN_READ), LOAD_CONN_READ, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return LOAD_CONN_AGAIN;
        if (n <= 0)
            return LOAD_CONN_FAILED;
        c->in.len += (size_t)n;
        enum http1_state state = http1_read(c->in.data, c->in.len, m);
        if (state != HTTP1_PARTIAL)
            return state == HTTP1_COMPLETE ? LOAD_CONN_DONE : LOAD_CONN_FAILED;
    }
}

/* Sends the queued bytes and waits for the response, which stays in c->in. */
static bool exchange(struct load_conn *c, const struct load_options *o, struct http1_message *m)
{
    struct pollfd p = {.fd = c->fd};
    int wait_ms = (int)(o->timeout * 1000);

    c->in.len = 0;
    for (bool sent = false;;) {
        enum load_conn_io io = sent ? load_conn_receive(c, m) : load_conn_flush(c);
        if (io == LOAD_CONN_FAILED)
            return false;
        if (io == LOAD_CONN_DONE && sent)
            return true;
        sent |= io == LOAD_CONN_DONE;
        p.events = sent ? POLLIN : POLLOUT;
        if (poll(&p, 1, wait_ms) <= 0)
            return false;
    }
}

static void put_head(struct buf *b, const char *method, const struct load_options *o)
{
    b->len = 0;
    buf_text(b, method);
    buf_text(b, " ");
    buf_text(b, o->path);
    buf_text(b, " HTTP/1.1\r\nHost: ");
    buf_text(b, o->host);
    buf_text(b, "\r\nAccept: application/json, text/event-stream\r\n");
    buf_append(b, o->headers.data, o->headers.len);
}

static void put_session(struct buf *b, struct span session, struct span version)
{
    if (session.len) {
        buf_text(b, "Mcp-Session-Id: ");
        buf_append(b, session.at, session.len);
        buf_text(b, "\r\n");
    }
    if (version.len) {
        buf_text(b, "MCP-Protocol-Version: ");
        buf_append(b, version.at, version.len);
        buf_text(b, "\r\n");
    }
}

static void set_head(struct load_conn *c, const struct load_options *o, struct span session, struct span version)
{
    c->session.len = 0;
    put_session(&c->session, session, version);
    put_head(&c->head, "POST", o);
    buf_append(&c->head, c->session.data, c->session.len);
    buf_text(&c->head, "Content-Type: application/json\r\nContent-Length: ");
}

/* Queues a request without a body in the session of c. */
static void put_request(struct load_conn *c, const char *method, const struct load_options *o)
{
    c->sent = 0;
    put_head(&c->out, method, o);
    buf_append(&c->out, c->session.data, c->session.len);
    buf_text(&c->out, "\r\n");
}

static bool post_text(struct load_conn *c, const struct load_options *o, const char *text, struct http1_message *m)
{
    struct buf body = {0};

    buf_text(&body, text);
    load_conn_post(c, &body);
    buf_free(&body);
    return exchange(c, o, m);
}

static const char *initialize(struct load_conn *c, const struct load_options *o)
{
    const struct check_want want = {.id = {"0", 1}};
    struct http1_message m;
    struct span result, version = {0};

    if (!post_text(c, o,
                   "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
                   "\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},"
                   "\"clientInfo\":{\"name\":\"bench_load\",\"version\":\"1\"}}}",
                   &m))
        return "initialize got no answer";
    const char *why = check_answer(&m, &want);
    if (why)
        return why;
    scan_member(check_message(&m, want.id), "result", &result);
    if (!scan_member(result, "protocolVersion", &version))
        return "initialize got no protocol version";
    set_head(c, o, m.session, scan_string(version));
    buf_drop(&c->in, m.total);
    return NULL;
}

const char *load_conn_handshake(struct load_conn *c, const struct load_options *o)
{
    struct http1_message m;

    set_head(c, o, (struct span){0}, (struct span){0});
    if (!o->session)
        return NULL;
    const char *why = initialize(c, o);
    if (why)
        return why;
    if (!post_text(c, o, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", &m))
        return "notifications/initialized got no answer";
    buf_drop(&c->in, m.total);
    return m.status == 202 ? NULL : "notifications/initialized was not accepted with 202";
}

bool load_conn_listen(struct load_conn *c, const struct load_options *o)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};

    put_request(c, "GET", o);
    if (load_conn_flush(c) != LOAD_CONN_DONE || poll(&p, 1, (int)(o->timeout * 1000)) <= 0)
        return false;
    ssize_t n = recv(c->fd, buf_room(&c->in, LOAD_CONN_READ), LOAD_CONN_READ, 0);
    bool opened = n >= 12 && memcmp(c->in.data, "HTTP/1.1 200", 12) == 0;
    buf_free(&c->in); /* not needed any more, and there may be thousands of connections */
    return opened;
}

bool load_conn_farewell(struct load_conn *c, const struct load_options *o)
{
    struct http1_message m;

    if (c->fd < 0 || !c->session.len)
        return true;
    put_request(c, "DELETE", o);
    /* 405: the server does not let clients end sessions. */
    return exchange(c, o, &m) && (m.status / 100 == 2 || m.status == 405);
}
