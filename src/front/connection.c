// Owns the objects of connections: made and released when the library reports that a connection has started or closed.
#include "base/mem.h"
#include "face.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

// Only starved handshakes and streams are watched: a second watch on a socket would slow down every call.
static void on_hangup(struct loop_watch *watch, unsigned events)
{
    struct caller *caller = watch->arg;
    struct http_exchange *exchange = caller->exchange;
    caller_unpark(caller);
    loop_unwatch(caller->face->loop, watch);
    // A caller may shut down its sending side and still wait for a plain answer. On a stream it has disconnected.
    if ((events & LOOP_HANGUP) && exchange && exchange->stream)
        caller_close(caller);
}

// Notices callers whose host disappeared without closing the connection.
static void keep_alive(int fd)
{
    int on = 1, idle = 30, interval = 10, count = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

static void open_connection(struct shard *shard, struct MHD_Connection *connection, void **context)
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

void connection_on_change(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct shard *shard = arg;
    struct http_face *face = shard->face;
    shard->active = true;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        open_connection(shard, connection, context);
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

void *connection_on_request_line(void *arg, const char *uri, struct MHD_Connection *connection)
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
