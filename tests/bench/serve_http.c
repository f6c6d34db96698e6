/* serve_http.c: the benchmark upstream over HTTP/1.1: one thread, epoll, keep-alive. */
#include "buf.h"
#include "http1.h"
#include "rpc.h"
#include "serve.h"
#include "timer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HTTP_CONNS = 4096, HTTP_READ = 32 * 1024, HTTP_EVENTS = 256, HTTP_CHUNK = 64 * 1024 };

struct conn {
    bool open;
    bool waiting;        /* an answer is delayed: later requests wait for it */
    bool wants_out;      /* epoll waits until the socket is writable */
    bool closing;        /* close once written */
    unsigned generation; /* distinguishes connections that used the same descriptor */
    struct buf in, out;
    size_t sent; /* bytes of out already written */
};

static struct conn http_conns[HTTP_CONNS]; /* by descriptor */
static int http_epoll;
static bool http_events; /* calls are answered as event streams */
static unsigned long http_sessions;
static struct buf http_body;

static void close_conn(int fd)
{
    struct conn *c = &http_conns[fd];

    close(fd);
    c->open = false;
    c->generation++;
    c->in.len = c->out.len = c->sent = 0;
}

static void put_answer(struct conn *c, const char *status, const char *session, const char *body, size_t len)
{
    struct buf *out = &c->out;

    buf_text(out, "HTTP/1.1 ");
    buf_text(out, status);
    buf_text(out, "\r\n");
    if (session) {
        buf_text(out, "Mcp-Session-Id: ");
        buf_text(out, session);
        buf_text(out, "\r\n");
    }
    if (len)
        buf_text(out, "Content-Type: application/json\r\n");
    buf_text(out, "Content-Length: ");
    buf_number(out, len);
    buf_text(out, "\r\n\r\n");
    buf_append(out, body, len);
}

static void put_chunk(struct buf *out, const char *text, size_t len)
{
    char size[24];

    snprintf(size, sizeof size, "%zx\r\n", len);
    buf_text(out, size);
    buf_append(out, text, len);
    buf_text(out, "\r\n");
}

static void put_result(struct conn *c, const char *body, size_t len)
{
    static const char data[] = "event: message\ndata: ";

    if (!http_events) {
        put_answer(c, "200 OK", NULL, body, len);
        return;
    }
    buf_text(&c->out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    put_chunk(&c->out, data, sizeof data - 1);
    for (size_t at = 0; at < len; at += HTTP_CHUNK)
        put_chunk(&c->out, body + at, len - at < HTTP_CHUNK ? len - at : HTTP_CHUNK);
    put_chunk(&c->out, "\n\n", 2);
    put_chunk(&c->out, "", 0);
}

static void put_refusal(struct conn *c, const char *status, const char *why)
{
    char body[160];

    snprintf(body, sizeof body, "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"%s\"}}",
             why);
    put_answer(c, status, NULL, body, strlen(body));
}

/* Sessions are named "bench-1" and so on; they do not end. */
static bool known_session(struct span session)
{
    unsigned long n = 0;

    if (session.len < 7 || session.len > 24 || memcmp(session.at, "bench-", 6) != 0)
        return false;
    for (size_t i = 6; i < session.len; i++) {
        if (session.at[i] < '0' || session.at[i] > '9')
            return false;
        n = n * 10 + (unsigned long)(session.at[i] - '0');
    }
    return n >= 1 && n <= http_sessions;
}

static void handle_post(int fd, const struct http1_message *m)
{
    struct conn *c = &http_conns[fd];

    http_body.len = 0;
    struct rpc_outcome o = rpc_answer(m->body, &http_body);
    if (o.is_initialize) {
        char session[32];
        snprintf(session, sizeof session, "bench-%lu", ++http_sessions);
        put_answer(c, "200 OK", session, http_body.data, http_body.len);
    } else if (!m->session.len) {
        put_refusal(c, "400 Bad Request", "no session");
    } else if (!known_session(m->session)) {
        put_refusal(c, "404 Not Found", "unknown session");
    } else if (o.fault == RPC_FAULT_STATUS) {
        put_refusal(c, "500 Internal Server Error", "deliberate fault");
    } else if (o.fault == RPC_FAULT_CLOSE) {
        c->closing = true;
    } else if (o.kind == RPC_LATER) {
        c->waiting = true;
        timer_add(o.delay_ms, fd, c->generation, http_body.data, http_body.len);
    } else if (o.kind == RPC_NOW) {
        put_result(c, http_body.data, http_body.len);
    } else if (o.is_call) {
        c->waiting = true; /* RPC_FAULT_HANG: there will be no answer */
    } else {
        put_answer(c, "202 Accepted", NULL, "", 0);
    }
}

static void handle_requests(int fd)
{
    struct conn *c = &http_conns[fd];
    size_t at = 0;

    while (!c->waiting && !c->closing) {
        struct http1_message m;
        enum http1_state state = http1_read(c->in.data + at, c->in.len - at, &m);
        if (state == HTTP1_PARTIAL)
            break;
        if (state == HTTP1_BAD || m.status) {
            put_refusal(c, "400 Bad Request", "not an HTTP/1.1 request");
            c->closing = true;
            break;
        }
        if (scan_is(m.method, "POST"))
            handle_post(fd, &m);
        else if (scan_is(m.method, "DELETE"))
            put_answer(c, "200 OK", NULL, "", 0);
        else
            put_answer(c, "405 Method Not Allowed", NULL, "", 0);
        c->closing |= m.close;
        at += m.total;
    }
    buf_drop(&c->in, at);
}

static void flush_conn(int fd)
{
    struct conn *c = &http_conns[fd];

    while (c->sent < c->out.len) {
        ssize_t n = send(fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            close_conn(fd);
            return;
        }
        if (n < 0)
            break;
        c->sent += (size_t)n;
    }
    if (c->sent == c->out.len)
        c->out.len = c->sent = 0;
    if (c->closing && !c->waiting && !c->out.len) {
        close_conn(fd);
        return;
    }
    if (c->wants_out != (c->out.len > 0)) {
        c->wants_out = c->out.len > 0;
        struct epoll_event ev = {.events = c->wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.fd = fd};
        epoll_ctl(http_epoll, EPOLL_CTL_MOD, fd, &ev);
    }
}

static void handle_event(int fd, uint32_t events)
{
    struct conn *c = &http_conns[fd];

    if (!c->open)
        return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = recv(fd, buf_room(&c->in, HTTP_READ), HTTP_READ, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
            close_conn(fd);
            return;
        }
        if (n > 0)
            c->in.len += (size_t)n;
        handle_requests(fd);
    }
    flush_conn(fd);
}

static void accept_conns(int listener)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        if (fd >= HTTP_CONNS) {
            close(fd);
            continue;
        }
        struct conn *c = &http_conns[fd];
        c->open = true;
        c->waiting = c->closing = c->wants_out = false;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(http_epoll, EPOLL_CTL_ADD, fd, &ev);
    }
}

static void release_due(void)
{
    struct timer due;

    while (timer_take(&due)) {
        struct conn *c = &http_conns[due.owner];
        if (c->open && c->generation == due.generation) {
            c->waiting = false;
            put_result(c, due.text.data, due.text.len);
            handle_requests(due.owner);
            flush_conn(due.owner);
        }
        buf_free(&due.text);
    }
}

static int open_listener(int port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&addr, len) < 0 || listen(fd, 1024) < 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
        return -1;
    printf("http://127.0.0.1:%d/mcp\n", ntohs(addr.sin_port));
    fflush(stdout);
    return fd;
}

int serve_http(int port, bool as_events)
{
    int listener = open_listener(port);

    if (listener < 0) {
        perror("bench_upstream: listen");
        return 1;
    }
    http_events = as_events;
    http_epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(http_epoll, EPOLL_CTL_ADD, listener, &ev);
    for (;;) {
        struct epoll_event events[HTTP_EVENTS];
        int n = epoll_wait(http_epoll, events, HTTP_EVENTS, timer_wait_ms());
        if (n < 0 && errno != EINTR)
            return 1;
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_conns(listener);
            else
                handle_event(events[i].data.fd, events[i].events);
        }
        release_due();
    }
}
