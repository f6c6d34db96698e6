// Owns the connections of the HTTP face: opening and closing, their peers, and noticing that a caller is gone.
#include "base/log.h"
#include "base/mem.h"
#include "face.h"
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
    deadline_none(caller);
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

void caller_cork(struct caller *caller, bool on)
{
    int value = on;
    setsockopt(caller->fd, IPPROTO_TCP, TCP_CORK, &value, sizeof value);  // fails for a Unix socket, which needs none
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
    deadline_start(caller);
    caller->hangup =
        (struct loop_watch){.fd = caller->fd, .on_ready = on_hangup, .arg = caller, .name = "caller hang-up"};
    listener_peer(caller->fd, &caller->peer);
    if (caller->peer.address.ss_family != AF_UNIX)
        keep_alive(caller->fd);
    if (face->tls)
        tls_begin(face->tls, connection, &caller->line, &shard->starved);
    list_append(&face->callers, &caller->node);
    list_append(&face->listening, &caller->listening);
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
    deadline_stop(caller);
    list_remove(&caller->node);
    list_remove(&caller->listening);
    list_remove(&caller->line.node);
    face->caller_count--;
    face->loads[shard->index]--;
    eviction_remove(caller);
    accept_freed(face);
    loop_reap(face->loop, caller, caller_free);
}

void *caller_on_request_line(void *arg, const char *uri, struct MHD_Connection *connection)
{
    struct shard *shard = arg;
    struct caller *caller = caller_of(connection);
    shard->active = true;
    const char *query = strncmp(uri, "/oauth/", 7) == 0 ? strchr(uri, '?') : NULL;
    if (!caller)
        return NULL;
    free(caller->query);
    caller->query = query ? mem_string(query + 1) : NULL;
    deadline_header(caller);
    return NULL;
}

// ---- callers that are gone ------------------------------------------------------------------

// libmicrohttpd 0.9.75 reads until a read comes back short, and waits for the next edge. A caller that sent something and
// closed at once makes one edge for both, so its end would be noticed only at a deadline.
void caller_sweep_gone(struct http_face *face)
{
    size_t count = 0, i = 0;
    list_each(node, &face->listening)
        count++;
    struct pollfd *polls = mem_alloc((count + 1) * sizeof *polls);
    list_each(node, &face->listening)
        polls[i++] = (struct pollfd){.fd = list_entry(node, struct caller, listening)->fd, .events = POLLRDHUP};
    bool some = poll(polls, count, 0) > 0;
    i = 0;
    list_each(node, &face->listening) {
        struct caller *caller = list_entry(node, struct caller, listening);
        int unread = 0;
        if (some && polls[i++].revents && !caller->parked && ioctl(caller->fd, FIONREAD, &unread) == 0 && !unread)
            caller_close(caller);
    }
    free(polls);
}
