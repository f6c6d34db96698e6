// Owns the operations on an open connection: closing it, suspending its handshake, and noticing that its caller has
// disconnected.
#include "base/mem.h"
#include "page.h"
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

// libmicrohttpd 0.9.75 treats a connection as readable until its handshake is complete, and asks to be run again at once
// however long the caller takes. So a handshake that finds nothing to read is suspended until bytes arrive or the
// connection is closed.
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

// ---- closing --------------------------------------------------------------------

// The library notices the shutdown by an event of the socket, or by the next write to a stream. It gets no events for a
// suspended connection, so a stream is resumed.
void caller_close(struct caller *caller)
{
    deadline_none(caller);
    shutdown(caller->fd, SHUT_RDWR);
    caller_unpark(caller);
    if (!caller->exchange || !caller->exchange->stream)
        return;
    caller->exchange->broken = true;
    http_exchange_resume(caller->exchange);
}

bool caller_is_authenticated(const struct caller *caller)
{
    const struct http_exchange *exchange = caller->exchange;
    return caller->authenticated ||
           (exchange && (exchange->arrival.authenticated || (exchange->page && exchange->page->request.identity)));
}

void caller_cork(struct caller *caller, bool on)
{
    int value = on;
    setsockopt(caller->fd, IPPROTO_TCP, TCP_CORK, &value, sizeof value);  // fails on a unix socket, harmlessly
}

// ---- disconnected callers -------------------------------------------------------------------

// libmicrohttpd 0.9.75 reads until a read is short, and waits for the next edge. A caller that sends something and closes
// at once causes one edge for both, so its disconnection would be noticed only at a deadline.
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
