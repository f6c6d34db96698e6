// Owns the connections of the HTTP face: their deadlines, their peers, and noticing that a caller is gone.
#include "base/log.h"
#include "base/mem.h"
#include "face.h"
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

struct caller *caller_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

// ---- TLS handshakes -------------------------------------------------------------------------

// libmicrohttpd 0.9.75 takes a connection in its handshake for readable until it is over, and asks to be
// run again at once, for as long as the caller takes. So the handshake that finds nothing to read is
// suspended until there is something (or the end, which the sweep may bring about).
void caller_park_starved(struct shard *shard)
{
    struct loop *loop = shard->face->loop;
    struct err err;
    while (!list_empty(&shard->starved)) {
        struct caller *caller = list_entry(shard->starved.next, struct caller, line.node);
        list_remove(&caller->line.node);
        if (caller->parked || !loop_watch(loop, &caller->hangup, LOOP_READ | LOOP_HANGUP | LOOP_ONCE, &err))
            continue;
        caller->parked = true;
        MHD_suspend_connection(caller->connection);
    }
}

void caller_unpark(struct caller *caller)
{
    if (!caller->parked)
        return;
    caller->parked = false;
    shard_resume(caller->shard, caller->connection);
}

// ---- opening and closing --------------------------------------------------------------------

// The library learns of it by an event of the socket, or by the next write to a stream. It has no events for a connection
// that is suspended, so a stream is resumed.
void caller_close(struct caller *caller)
{
    caller->deadline_ms = 0;
    shutdown(caller->fd, SHUT_RDWR);
    caller_unpark(caller);
    if (!caller->visit || !caller->visit->stream)
        return;
    caller->visit->broken = true;
    visit_resume(caller->visit);
}

// Only handshakes that starve and streams are watched: a second watch on a socket costs every call something.
static void on_hangup(struct loop_watch *watch, unsigned events)
{
    struct caller *caller = watch->arg;
    struct visit *visit = caller->visit;
    caller_unpark(caller);
    loop_unwatch(caller->face->loop, watch);
    // A caller may shut down its sending side and still wait for a plain answer; nobody does so on a stream.
    if ((events & LOOP_HANGUP) && visit && visit->stream)
        caller_close(caller);
}

// So that a caller whose host vanished is noticed.
static void keep_alive(int fd)
{
    int on = 1, idle = 30, interval = 10, count = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void caller_open(struct shard *shard, struct MHD_Connection *connection, void **context)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_face *face = shard->face;
    struct caller *caller = mem_new(struct caller);
    caller->face = face;
    caller->shard = shard;
    caller->connection = connection;
    caller->fd = info->connect_fd;
    caller->deadline_ms = loop_now(face->loop) + face->config->limits.header_timeout_ms;  // TLS handshake included
    caller->hangup =
        (struct loop_watch){.fd = caller->fd, .on_ready = on_hangup, .arg = caller, .name = "caller hang-up"};
    listener_peer(caller->fd, &caller->peer);
    if (caller->peer.address.ss_family != AF_UNIX)
        keep_alive(caller->fd);
    if (face->tls)
        tls_begin(face->tls, connection, &caller->line, &shard->starved);
    list_append(&face->callers, &caller->node);
    face->caller_count++;
    face->loads[shard->index]++;
    eviction_add(caller);
    *context = caller;
}

static void caller_free(void *object)
{
    struct caller *caller = object;
    tls_release_peer(&caller->peer);
    tls_end(&caller->line);
    free(caller->query);
    free(caller);
}

void caller_on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct shard *shard = arg;
    struct http_face *face = shard->face;
    shard->active = true;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        caller_open(shard, connection, context);
        return;
    }
    struct caller *caller = *context;
    loop_unwatch(face->loop, &caller->hangup);
    list_remove(&caller->node);
    list_remove(&caller->line.node);
    face->caller_count--;
    face->loads[shard->index]--;
    eviction_remove(caller);
    accept_freed(face);
    loop_reap(face->loop, caller, caller_free);
}

// ---- deadlines ------------------------------------------------------------------------------

// The request line is in: from here the headers have their time.
void *caller_on_request_line(void *arg, const char *uri, struct MHD_Connection *connection)
{
    struct shard *shard = arg;
    struct http_face *face = shard->face;
    struct caller *caller = caller_of(connection);
    shard->active = true;
    const char *query = strncmp(uri, "/oauth/", 7) == 0 ? strchr(uri, '?') : NULL;
    if (caller) {
        free(caller->query);
        caller->query = query ? mem_string(query + 1) : NULL;
    }
    int64_t deadline = loop_now(face->loop) + face->config->limits.header_timeout_ms;
    if (caller && (!caller->deadline_ms || deadline < caller->deadline_ms))
        caller->deadline_ms = deadline;
    return NULL;
}

int64_t caller_body_ms(const struct caller *caller)
{
    const struct config_limits *limits = &caller->face->config->limits;
    bool shorter =
        !eviction_is_authenticated(caller) && limits->unauthenticated_body_timeout_ms < limits->body_timeout_ms;
    return shorter ? limits->unauthenticated_body_timeout_ms : limits->body_timeout_ms;
}

// An answer or stream that the caller does not read: libmicrohttpd would wait for ever.
static bool is_stuck(struct caller *caller, int64_t now)
{
    int queued = 0;
    if (!caller->visit || caller->visit->state < VISIT_ANSWERED)
        return false;
    if (ioctl(caller->fd, SIOCOUTQ, &queued) < 0 || queued == 0 || queued != caller->queued) {
        caller->queued = queued;
        caller->moved_ms = now;
        return false;
    }
    return now - caller->moved_ms > caller_body_ms(caller);
}

void caller_sweep(struct http_face *face)
{
    int64_t now = loop_now(face->loop);
    list_each(node, &face->callers) {
        struct caller *caller = list_entry(node, struct caller, node);
        if ((caller->deadline_ms && now > caller->deadline_ms) || is_stuck(caller, now))
            caller_close(caller);
    }
}

// ---- callers that are gone ------------------------------------------------------------------

// More of a request is expected: what the caller still has to send decides whether it goes on.
static bool is_listening(const struct caller *caller)
{
    return !caller->parked && (!caller->visit || caller->visit->state == VISIT_BODY);
}

// libmicrohttpd 0.9.75 reads until a read comes back short, and waits for the next edge. A caller that sent something and
// closed at once makes one edge for both, so its end would be noticed only at a deadline.
void caller_sweep_gone(struct http_face *face)
{
    size_t count = 0, i = 0;
    list_each(node, &face->callers)
        count += is_listening(list_entry(node, struct caller, node));
    struct pollfd *polls = mem_alloc((count + 1) * sizeof *polls);
    list_each(node, &face->callers) {
        const struct caller *caller = list_entry(node, struct caller, node);
        if (is_listening(caller))
            polls[i++] = (struct pollfd){.fd = caller->fd, .events = POLLRDHUP};
    }
    bool some = poll(polls, count, 0) > 0;
    i = 0;
    list_each(node, &face->callers) {
        struct caller *caller = list_entry(node, struct caller, node);
        int unread = 0;
        if (some && is_listening(caller) && polls[i++].revents && ioctl(caller->fd, FIONREAD, &unread) == 0 && !unread)
            caller_close(caller);
    }
    free(polls);
}
