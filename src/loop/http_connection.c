// Owns connections to servers, and how libcurl, which opens them, waits for events of the loop.
//
//   opening ─► busy ⇄ idle ─► retired
//
// curl resolves, connects, secures and tunnels (CURLOPT_CONNECT_ONLY); from then on the client handles the socket's
// events. A handle stays with the multi handle as long as its connection is used, unless the connection is plain: then
// the client takes over the socket. Multi functions are forbidden inside curl's callbacks, so connections are closed at
// the end of the turn.
#include "base/mem.h"
#include "http_state.h"
#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_MS 60000    // how long a connection waits for its next use
#define CLOSING_MS 1000  // a connection is not used any more this long before the server closes it

// ---- sockets and the timer ------------------------------------------------------------------

void http_connection_settle(struct http_client *client)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct http_connection *connection;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &connection);
        client->on_opened(connection, code);
    }
}

static void on_socket_ready(struct loop_watch *watch, unsigned events)
{
    struct client_socket *socket = watch->arg;
    struct http_client *client = socket->client;
    if (socket->connection) {
        client->on_ready(socket->connection, events);
        return;
    }
    if (!socket->in_use) {
        loop_unwatch(client->loop, watch);
        return;
    }
    int mask = (events & LOOP_READ ? CURL_CSELECT_IN : 0) | (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0);
    int running;
    curl_multi_socket_action(client->multi, watch->fd, mask, &running);
    http_connection_settle(client);
}

static struct client_socket *socket_get(struct http_client *client, curl_socket_t fd)
{
    size_t index = (size_t)fd;
    if (index >= client->socket_room) {
        size_t room = index * 2 + 16;
        client->sockets = mem_resize(client->sockets, room * sizeof *client->sockets);
        memset(client->sockets + client->socket_room, 0, (room - client->socket_room) * sizeof *client->sockets);
        client->socket_room = room;
    }
    if (!client->sockets[index]) {
        struct client_socket *socket = mem_new(struct client_socket);
        socket->client = client;
        socket->watch =
            (struct loop_watch){.fd = fd, .on_ready = on_socket_ready, .arg = socket, .name = "http client socket"};
        client->sockets[index] = socket;
    }
    return client->sockets[index];
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *assigned)
{
    (void)easy;
    (void)assigned;
    struct http_client *client = arg;
    struct client_socket *socket = socket_get(client, fd);
    if (what == CURL_POLL_REMOVE) {
        socket->in_use = false;
        if (!socket->ours)  // the resolver's: closed without a callback, and its number may be used again
            loop_unwatch(client->loop, &socket->watch);
        return 0;
    }
    struct err err;
    socket->in_use = true;
    unsigned events = (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0);
    return loop_watch(client->loop, &socket->watch, events, &err) ? 0 : -1;
}

static curl_socket_t on_curl_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct http_connection *connection = arg;
    if (connection->retired)  // its target may have been freed
        return CURL_SOCKET_BAD;
    struct http_target *target = connection->target;
    struct http_client *client = target->client;
    if (target->allow && !target->allow(target->allow_arg, &address->addr)) {
        connection->disallowed = true;
        return CURL_SOCKET_BAD;
    }
    curl_socket_t fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    struct client_socket *socket = socket_get(client, fd);
    loop_unwatch(client->loop, &socket->watch);
    socket->ours = true;
    return fd;
}

static void socket_free(struct client_socket *socket)
{
    struct http_client *client = socket->client;
    client->sockets[socket->watch.fd] = NULL;
    socket->connection = NULL;
    loop_unwatch(client->loop, &socket->watch);
    loop_reap(client->loop, socket, free);
}

static int on_curl_close(void *arg, curl_socket_t fd)
{
    struct http_client *client = arg;
    struct client_socket *socket = (size_t)fd < client->socket_room ? client->sockets[fd] : NULL;
    if (socket && socket->kept)
        return 0;
    if (socket)
        socket_free(socket);
    return close(fd);
}

static int on_curl_timer(CURLM *multi, long after_ms, void *arg)
{
    (void)multi;
    struct http_client *client = arg;
    client->kick = after_ms == 0;
    if (after_ms < 0)
        loop_timer_stop(client->loop, &client->timer);
    else if (after_ms == 0)
        loop_task_put(client->loop, &client->work);
    else
        loop_timer_set(client->loop, &client->timer, after_ms);
    return 0;
}

static void on_timer(struct loop_timer *timer)
{
    struct http_client *client = timer->arg;
    int running;
    curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    http_connection_settle(client);
}

// ---- connections ----------------------------------------------------------------------------

// Without CURLOPT_CAPATH, curl reads the authorities of the system only once, from their file. With a file of the
// server's own, the authorities of the system are looked up in their folder.
static void set_authorities(CURL *easy, const struct http_target *target)
{
    if (target->ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, target->ca_file);
    else
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
}

// In each curl_easy_send() and curl_easy_recv(), curl goes through all connections of the cache that the handle uses,
// and for each connection that is opened it closes some of them. So this connection gets a cache of its own. (A multi
// handle for each would also work, but reads the system's authorities again.)
static void keep_apart(struct http_connection *connection)
{
    connection->share = curl_share_init();
    if (!connection->share ||
        curl_share_setopt(connection->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_CONNECT) != CURLSHE_OK)
        abort();
    curl_easy_setopt(connection->easy, CURLOPT_SHARE, connection->share);
}

struct http_connection *http_connection_new(struct http_target *target)
{
    struct http_connection *connection = mem_new(struct http_connection);
    CURL *easy = connection->easy = curl_easy_init();
    if (!easy)
        abort();
    connection->target = target;
    connection->url =
        target->parsed ? curl_url_dup(target->parsed) : NULL;  // the target may be freed before curl is done
    if (connection->url)
        curl_easy_setopt(easy, CURLOPT_CURLU, connection->url);
    else
        curl_easy_setopt(easy, CURLOPT_URL, target->url);  // curl reports errors in the URL itself
    curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    set_authorities(easy, target);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)target->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_curl_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, connection);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_curl_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, target->client);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->problem);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, connection);
    curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L);  // through a proxy, never to it
    if (target->loopback || target->allow)                // and never through one of the environment
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    bool kept = target->secure || !target->loopback;  // the handle, for TLS or a proxy
    // curl allocates this size for every handle, and reads no more than that at once.
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kept ? (long)HTTP_READ_BYTES : 1024L);
    if (kept)
        keep_apart(connection);
    return connection;
}

static void leave(struct http_connection *connection)
{
    struct http_client *client = connection->target->client;
    if (connection->transfer)
        connection->target->busy[connection->transfer->urgent]--;
    connection->transfer = NULL;
    if (!list_empty(&client->waiting))
        loop_task_put(client->loop, &client->start);
}

// Removes it from all lists; the `work` task closes it.
void http_connection_retire(struct http_connection *connection)
{
    struct http_client *client = connection->target->client;
    if (connection->retired)
        return;
    connection->retired = true;
    leave(connection);
    if (connection->socket)
        loop_unwatch(client->loop, &connection->socket->watch);
    list_remove(&connection->node);
    list_remove(&connection->target_node);
    list_append(&client->retired, &connection->node);
    loop_task_put(client->loop, &client->work);
}

void http_connection_close_retired(struct http_client *client)
{
    while (!list_empty(&client->retired)) {
        struct http_connection *connection = list_entry(client->retired.next, struct http_connection, node);
        list_remove(&connection->node);
        if (connection->easy) {
            curl_multi_remove_handle(client->multi, connection->easy);  // also closes the socket
            curl_easy_cleanup(connection->easy);
        } else {
            close(connection->socket->watch.fd);
            socket_free(connection->socket);
        }
        curl_url_cleanup(connection->url);
        curl_share_cleanup(connection->share);
        loop_reap(client->loop, connection, free);
    }
}

void http_connection_rest(struct http_connection *connection, uint64_t keep_s)
{
    struct http_client *client = connection->target->client;
    leave(connection);
    connection->used = true;
    connection->idle_since_ms = loop_now(client->loop);
    bool told = keep_s > 0 && keep_s < IDLE_MS / 1000;
    connection->usable_until_ms = connection->idle_since_ms + (told ? (int64_t)keep_s * 1000 - CLOSING_MS : IDLE_MS);
    list_remove(&connection->node);
    list_append(&client->idle, &connection->node);
    list_append(&connection->target->idle, &connection->target_node);
    if (!client->expiry.slot)
        loop_timer_set(client->loop, &client->expiry, IDLE_MS);
}

static void on_expiry(struct loop_timer *timer)
{
    struct http_client *client = timer->arg;
    list_each(node, &client->idle) {
        struct http_connection *connection = list_entry(node, struct http_connection, node);
        int64_t left = connection->idle_since_ms + IDLE_MS - loop_now(client->loop);
        if (left > 0) {
            loop_timer_set(client->loop, timer, left);
            return;
        }
        http_connection_retire(connection);
    }
}

// The server has closed the connection or sent unsolicited bytes, and the loop has not reported it yet.
static bool has_news(const struct http_connection *connection)
{
    char byte;
    return recv(connection->socket->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

// The most recently used connection that still works. A request is lost if the server closes meanwhile, and a call must
// not be sent twice.
struct http_connection *http_connection_find_idle(struct http_target *target)
{
    while (!list_empty(&target->idle)) {
        struct http_connection *connection = list_entry(target->idle.prev, struct http_connection, target_node);
        if (connection->usable_until_ms <= loop_now(target->client->loop) || has_news(connection)) {
            http_connection_retire(connection);
            continue;
        }
        list_remove(&connection->target_node);
        list_remove(&connection->node);
        return connection;
    }
    return NULL;
}

// A server's close acknowledges the bytes that it received: bytes that are still in the send queue were too late.
bool http_connection_unheard(const struct http_connection *connection)
{
    int queued = 0;
    return ioctl(connection->socket->watch.fd, SIOCOUTQ, &queued) == 0 && queued > 0;
}

bool http_connection_watch(struct http_connection *connection, unsigned events, struct err *err)
{
    return loop_watch(connection->target->client->loop, &connection->socket->watch, events, err);
}

// A handle takes more memory than the rest of a connection, and a plain socket does not need it.
static void drop_handle(struct http_connection *connection)
{
    connection->socket->kept = true;
    curl_multi_remove_handle(connection->target->client->multi, connection->easy);
    curl_easy_cleanup(connection->easy);
    connection->easy = NULL;
}

void http_connection_opened(struct http_connection *connection, curl_socket_t fd)
{
    connection->socket = socket_get(connection->target->client, fd);
    connection->socket->connection = connection;
    const char *address = NULL;
    long tunnel = 0;  // a proxy's answer, if one is used: the way to it may have TLS of its own
    curl_easy_getinfo(connection->easy, CURLINFO_PRIMARY_IP, &address);
    curl_easy_getinfo(connection->easy, CURLINFO_HTTP_CONNECTCODE, &tunnel);
    snprintf(connection->address, sizeof connection->address, "%s", address ? address : "");
    connection->plain = !connection->target->secure && !tunnel;
    if (connection->plain)
        drop_handle(connection);
}

void http_connection_drive(struct http_client *client)
{
    client->timer = (struct loop_timer){.on_due = on_timer, .arg = client, .name = "http client"};
    client->expiry = (struct loop_timer){.on_due = on_expiry, .arg = client, .name = "http client"};
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
}

// ---- bytes ----------------------------------------------------------------------------------

static ssize_t plain_result(ssize_t count)
{
    return count >= 0 ? count : errno == EAGAIN || errno == EINTR ? HTTP_LATER : HTTP_BROKEN;
}

static ssize_t curl_result(CURLcode code, size_t count)
{
    return code == CURLE_OK ? (ssize_t)count : code == CURLE_AGAIN ? HTTP_LATER : HTTP_BROKEN;
}

static ssize_t send_parts(int fd, const struct span *parts, size_t count)
{
    struct iovec vector[HTTP_PARTS_A_CALL];
    for (size_t i = 0; i < count; i++)
        vector[i] = (struct iovec){(void *)parts[i].at, parts[i].len};
    return sendmsg(fd, &(struct msghdr){.msg_iov = vector, .msg_iovlen = count}, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t http_connection_send(struct http_connection *connection, const struct span *parts, size_t count)
{
    int fd = connection->socket->watch.fd;
    if (connection->plain)
        return plain_result(count == 1 ? send(fd, parts[0].at, parts[0].len, MSG_NOSIGNAL | MSG_DONTWAIT)
                                       : send_parts(fd, parts, count));
    size_t sent = 0;
    CURLcode code = curl_easy_send(connection->easy, parts[0].at, parts[0].len, &sent);
    return curl_result(code, sent);
}

ssize_t http_connection_receive(struct http_connection *connection, char *room, size_t size)
{
    if (connection->plain)
        return plain_result(recv(connection->socket->watch.fd, room, size, MSG_DONTWAIT));
    size_t count = 0;
    CURLcode code = curl_easy_recv(connection->easy, room, size, &count);
    return curl_result(code, count);
}
