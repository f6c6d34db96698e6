// Owns libcurl: connections are opened, named, secured and proxied by curl; the exchange on them is ours.
//
//   transfer:   waiting ─► connecting ─► exchanging ─► done
//   connection: opening ─► busy ⇄ idle ─► retired
//
// A whole transfer by curl costs more than all the rest of a call (docs/performance.md), so curl opens connections
// only (CURLOPT_CONNECT_ONLY), http1.c reads the answers, and a connection that can be used again waits for the next
// transfer to its target. Starting and closing are done by the `work` task at the end of the turn: what is sent there
// goes out in one burst, and nothing is freed under the feet of a callback.
#include "loop/http_client.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"
#include "loop/http1.h"
#include "loop/http_url.h"
#include <curl/curl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 65536
#define READS_A_TURN 8  // of one connection; then the others have theirs
#define MORE_MS 1       // until they are over
#define IDLE_MS 60000   // how long a connection waits for its next use

struct client_socket {
    struct loop_watch watch;
    struct http_client *client;
    struct connection *connection;  // whose exchanges it carries; NULL while curl opens it
    bool in_use;                    // curl wants its events now
    bool ours;                      // opened by on_curl_open, so on_curl_close will tell of its end
};

struct http_client {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer timer;
    struct loop_timer expiry;
    struct loop_timer more;
    struct loop_task work;
    struct list waiting;             // transfers to start
    struct list unread;              // connections with more to read than one turn allows
    struct list idle;                // connections, the one that waits longest first
    struct list retired;             // connections to close
    struct client_socket **sockets;  // by descriptor
    size_t socket_room;
    bool kick;
    char *room;  // READ_BYTES, for whatever is read
};

struct http_target {
    struct http_client *client;
    char *url;
    CURLU *parsed;
    int64_t connect_timeout_ms;
    struct header {
        char *name, *value;
    } * headers;
    size_t header_count;
    struct buf head;   // of a request, from the path to the last fixed header
    struct list idle;  // connections, the last used one last
    unsigned running;
    bool loopback, secure;
    bool orphan;  // freed by its owner while transfers ran
};

struct connection {
    struct http_target *target;
    struct list node;         // in the client's `idle`, `unread` or `retired`
    struct list target_node;  // in the target's `idle`
    CURL *easy;
    struct client_socket *socket;  // once it is open
    struct http_transfer *transfer;
    int64_t idle_since_ms;
    bool used;  // it has carried an exchange before
    bool retired;
    char problem[CURL_ERROR_SIZE];
};

struct http_transfer {
    struct http_target *target;
    struct list node;
    struct connection *connection;
    struct http1 answer;
    struct buf request;  // kept until the answer begins, for a second try
    size_t sent;
    struct loop_timer deadline;
    bool over;      // nothing is said any more
    bool answered;  // a byte of the answer has come
    bool retried;
    const struct http_events *events;
    void *arg;
};

// ---- sockets and the timer ------------------------------------------------------------------

static void settle(struct http_client *client);
static void connection_ready(struct connection *connection, unsigned events);

static void on_socket_ready(struct loop_watch *watch, unsigned events)
{
    struct client_socket *socket = watch->arg;
    struct http_client *client = socket->client;
    if (socket->connection) {
        connection_ready(socket->connection, events);
        return;
    }
    if (!socket->in_use) {
        loop_unwatch(client->loop, watch);
        return;
    }
    int mask = (events & LOOP_READ ? CURL_CSELECT_IN : 0) | (events & LOOP_WRITE ? CURL_CSELECT_OUT : 0);
    int running;
    curl_multi_socket_action(client->multi, watch->fd, mask, &running);
    settle(client);
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
        socket->watch = (struct loop_watch){.fd = fd, .on_ready = on_socket_ready, .arg = socket};
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
        if (!socket->ours)  // the resolver's: closed without a word, and its number used again
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
    struct http_client *client = arg;
    curl_socket_t fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    struct client_socket *socket = socket_get(client, fd);
    loop_unwatch(client->loop, &socket->watch);
    socket->ours = true;
    return fd;
}

static int on_curl_close(void *arg, curl_socket_t fd)
{
    struct http_client *client = arg;
    struct client_socket *socket = (size_t)fd < client->socket_room ? client->sockets[fd] : NULL;
    if (socket) {
        client->sockets[fd] = NULL;
        socket->connection = NULL;
        loop_unwatch(client->loop, &socket->watch);
        loop_reap(client->loop, socket, free);
    }
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
    settle(client);
}

// ---- connections ----------------------------------------------------------------------------

static struct connection *connection_new(struct http_target *target)
{
    struct connection *connection = mem_new(struct connection);
    CURL *easy = connection->easy = curl_easy_init();
    if (!easy)
        abort();
    connection->target = target;
    if (target->parsed)
        curl_easy_setopt(easy, CURLOPT_CURLU, target->parsed);
    else
        curl_easy_setopt(easy, CURLOPT_URL, target->url);  // curl itself says what is wrong with it
    curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, (long)READ_BYTES);
    curl_easy_setopt(easy, CURLOPT_CAPATH,
                     NULL);  // with the file alone, curl reads the authorities once, not each time
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)target->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_curl_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, target->client);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_curl_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, target->client);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->problem);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, connection);
    curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L);  // through a proxy, never to it
    if (target->loopback)                                 // and never through one of the environment
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    return connection;
}

// Out of all lists; the `work` task closes it.
static void connection_retire(struct connection *connection)
{
    struct http_client *client = connection->target->client;
    if (connection->retired)
        return;
    connection->retired = true;
    connection->transfer = NULL;
    if (connection->socket)
        loop_unwatch(client->loop, &connection->socket->watch);
    list_remove(&connection->node);
    list_remove(&connection->target_node);
    list_append(&client->retired, &connection->node);
    loop_task_put(client->loop, &client->work);
}

static void connection_close(struct connection *connection, struct http_client *client)
{
    list_remove(&connection->node);
    curl_multi_remove_handle(client->multi, connection->easy);  // closes the socket, too
    curl_easy_cleanup(connection->easy);
    loop_reap(client->loop, connection, free);
}

static void connection_rest(struct connection *connection)
{
    struct http_client *client = connection->target->client;
    connection->transfer = NULL;
    connection->used = true;
    connection->idle_since_ms = loop_now(client->loop);
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
        struct connection *connection = list_entry(node, struct connection, node);
        int64_t left = connection->idle_since_ms + IDLE_MS - loop_now(client->loop);
        if (left > 0) {
            loop_timer_set(client->loop, timer, left);
            return;
        }
        connection_retire(connection);
    }
}

// The last used one, if it is still there.
static struct connection *connection_find_idle(struct http_target *target)
{
    if (list_empty(&target->idle))
        return NULL;
    struct connection *connection = list_entry(target->idle.prev, struct connection, target_node);
    list_remove(&connection->target_node);
    list_remove(&connection->node);
    return connection;
}

static bool connection_watch(struct connection *connection, unsigned events, struct err *err)
{
    return loop_watch(connection->target->client->loop, &connection->socket->watch, events, err);
}

// ---- transfers ------------------------------------------------------------------------------

static void target_release(struct http_target *target);

static void transfer_free(void *object)
{
    struct http_transfer *transfer = object;
    http1_release(&transfer->answer);
    buf_release(&transfer->request);
    free(transfer);
}

// Nothing is said of it any more. Its connection is retired, unless it was taken from it before.
static void transfer_end(struct http_transfer *transfer)
{
    struct http_target *target = transfer->target;
    transfer->over = true;
    if (transfer->connection)
        connection_retire(transfer->connection);
    transfer->connection = NULL;
    list_remove(&transfer->node);
    loop_timer_stop(target->client->loop, &transfer->deadline);
    loop_reap(target->client->loop, transfer, transfer_free);
    if (--target->running == 0 && target->orphan)
        target_release(target);
}

static void transfer_done(struct http_transfer *transfer, const struct err *err)
{
    const struct http_events *events = transfer->events;
    void *arg = transfer->arg;
    transfer_end(transfer);
    events->on_done(arg, err);
}

static void transfer_fail(struct http_transfer *transfer, enum err_code code, const char *why)
{
    struct err err;
    (void)err_set(&err, code, "%s: %s", transfer->target->url, why);
    transfer_done(transfer, &err);
}

// The connection ended or broke. If it was kept from an earlier exchange and the server said nothing on it, the
// server may have closed it before it saw the request: that is tried once more, on a new one.
static void transfer_lost(struct http_transfer *transfer, const char *why)
{
    struct http_client *client = transfer->target->client;
    if (transfer->connection->used && !transfer->answered && !transfer->retried) {
        connection_retire(transfer->connection);
        transfer->connection = NULL;
        transfer->retried = true;
        transfer->sent = 0;
        list_append(&client->waiting, &transfer->node);
        loop_task_put(client->loop, &client->work);
        return;
    }
    transfer_fail(transfer, ERR_UPSTREAM_DIED, why);
}

static void on_deadline(struct loop_timer *timer)
{
    transfer_fail(timer->arg, ERR_UPSTREAM_TIMEOUT, "no whole answer in time");
}

static void transfer_send(struct http_transfer *transfer)
{
    struct connection *connection = transfer->connection;
    struct err err;
    while (transfer->sent < transfer->request.len) {
        size_t count = 0;
        CURLcode code = curl_easy_send(connection->easy, transfer->request.at + transfer->sent,
                                       transfer->request.len - transfer->sent, &count);
        if (code == CURLE_AGAIN)
            break;
        if (code != CURLE_OK) {
            transfer_lost(transfer, "the connection broke while the request was sent");
            return;
        }
        transfer->sent += count;
    }
    bool all = transfer->sent == transfer->request.len;
    if (!connection_watch(connection, all ? LOOP_READ : LOOP_READ | LOOP_WRITE, &err))
        transfer_fail(transfer, err.code, err.detail);
}

// The answer is whole: the connection rests if it can, and goes otherwise.
static void transfer_complete(struct http_transfer *transfer, bool clean)
{
    struct connection *connection = transfer->connection;
    if (clean && transfer->answer.keep && transfer->sent == transfer->request.len && !transfer->target->orphan) {
        transfer->connection = NULL;
        connection_rest(connection);
    }
    transfer_done(transfer, NULL);
}

// A request that was sent and is being answered needs no memory any more.
static void request_forget(struct http_transfer *transfer)
{
    if (transfer->sent < transfer->request.len)
        return;
    buf_release(&transfer->request);
    transfer->sent = 0;
}

// False when the transfer is over.
static bool transfer_feed(struct http_transfer *transfer, struct span bytes)
{
    struct span piece;
    struct err err;
    transfer->answered = true;
    for (;;) {
        switch (http1_next(&transfer->answer, &bytes, &piece, &err)) {
        case HTTP1_BROKEN: transfer_fail(transfer, err.code, err.detail); return false;
        case HTTP1_MORE: return true;
        case HTTP1_HEAD:
            request_forget(transfer);
            transfer->events->on_head(transfer->arg, transfer, transfer->answer.status);
            break;
        case HTTP1_BODY:
            if (!transfer->events->on_data(transfer->arg, piece) && !transfer->over)
                transfer_fail(transfer, ERR_UPSTREAM_TRANSPORT, "the rest of the answer was not wanted");
            break;
        case HTTP1_END: transfer_complete(transfer, bytes.len == 0); return false;
        }
        if (transfer->over)
            return false;
    }
}

static void transfer_at_close(struct http_transfer *transfer)
{
    if (http1_ends(&transfer->answer))
        transfer_complete(transfer, false);
    else
        transfer_lost(transfer, transfer->answered ? "the server closed the connection in the middle of its answer"
                                                   : "the server closed the connection without an answer");
}

static void connection_read(struct connection *connection)
{
    struct http_transfer *transfer = connection->transfer;
    struct http_client *client = connection->target->client;
    for (int i = 0; i < READS_A_TURN; i++) {
        size_t count = 0;
        CURLcode code = curl_easy_recv(connection->easy, client->room, READ_BYTES, &count);
        if (code == CURLE_AGAIN)
            return;
        if (code != CURLE_OK) {
            transfer_lost(transfer, "the connection broke while the answer was read");
            return;
        }
        if (!count) {
            transfer_at_close(transfer);
            return;
        }
        if (!transfer_feed(transfer, span_make(client->room, count)))
            return;
        if (count < READ_BYTES && !connection->target->secure)  // with TLS, curl may hold more than the socket
            return;
    }
    if (!connection->target->secure)
        return;  // the socket says so again
    list_append(&client->unread, &connection->node);
    loop_timer_set(client->loop, &client->more, MORE_MS);
}

static void on_more(struct loop_timer *timer)
{
    struct http_client *client = timer->arg;
    struct list now;
    list_init(&now);
    while (!list_empty(&client->unread)) {  // those that are put back wait for the next time
        struct list *node = client->unread.next;
        list_remove(node);
        list_append(&now, node);
    }
    while (!list_empty(&now)) {
        struct connection *connection = list_entry(now.next, struct connection, node);
        list_remove(&connection->node);
        connection_read(connection);
    }
}

static void connection_ready(struct connection *connection, unsigned events)
{
    if (connection->retired)
        return;
    if (!connection->transfer) {  // idle: the server closed it, or talks without being asked
        connection_retire(connection);
        return;
    }
    if (events & LOOP_WRITE)
        transfer_send(connection->transfer);
    if (events & LOOP_READ && connection->transfer && !list_linked(&connection->node))
        connection_read(connection);
}

static enum err_code failure_of(CURLcode code)
{
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return ERR_UPSTREAM_TIMEOUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return ERR_UNAVAILABLE;
    default: return ERR_UPSTREAM_TRANSPORT;
    }
}

// curl has opened a connection, or could not.
static void connection_opened(struct connection *connection, CURLcode code)
{
    struct http_transfer *transfer = connection->transfer;
    curl_socket_t fd = CURL_SOCKET_BAD;
    if (connection->retired)
        return;
    if (code == CURLE_OK)
        curl_easy_getinfo(connection->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (fd == CURL_SOCKET_BAD) {
        transfer_fail(transfer, failure_of(code),
                      *connection->problem ? connection->problem : curl_easy_strerror(code));
        return;
    }
    connection->socket = socket_get(connection->target->client, fd);
    connection->socket->connection = connection;
    transfer_send(transfer);
}

static void settle(struct http_client *client)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct connection *connection;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &connection);
        connection_opened(connection, code);
    }
}

static void transfer_go(struct http_transfer *transfer)
{
    struct connection *connection = transfer->retried ? NULL : connection_find_idle(transfer->target);
    bool open = connection != NULL;
    if (!open)
        connection = connection_new(transfer->target);
    connection->transfer = transfer;
    transfer->connection = connection;
    if (open)
        transfer_send(transfer);
    else
        curl_multi_add_handle(transfer->target->client->multi, connection->easy);
}

static void on_work(struct loop_task *task)
{
    struct http_client *client = task->arg;
    while (!list_empty(&client->waiting)) {
        struct http_transfer *transfer = list_entry(client->waiting.next, struct http_transfer, node);
        list_remove(&transfer->node);
        transfer_go(transfer);
    }
    if (client->kick) {
        int running;
        client->kick = false;
        curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        settle(client);
    }
    while (!list_empty(&client->retired))
        connection_close(list_entry(client->retired.next, struct connection, node), client);
}

static const char *const methods[] = {[HTTP_POST] = "POST ", [HTTP_GET] = "GET ", [HTTP_DELETE] = "DELETE "};

struct http_transfer *http_start(struct http_target *target, const struct http_request *request)
{
    struct http_transfer *transfer = mem_new(struct http_transfer);
    struct buf *out = &transfer->request;
    transfer->target = target;
    transfer->events = request->events;
    transfer->arg = request->arg;
    target->running++;
    buf_reserve(out, target->head.len + request->body.len + 64);
    buf_put_text(out, methods[request->method]);
    buf_put_span(out, buf_span(&target->head));
    if (request->extra_header) {
        buf_put_text(out, request->extra_header);
        buf_put_text(out, "\r\n");
    }
    if (request->method == HTTP_POST) {
        buf_put_text(out, "Content-Length: ");
        buf_put_int(out, (int64_t)request->body.len);
        buf_put_text(out, "\r\n");
    }
    buf_put_text(out, "\r\n");
    if (request->method == HTTP_POST)
        buf_put_span(out, request->body);
    transfer->deadline = (struct loop_timer){.on_due = on_deadline, .arg = transfer};
    if (request->timeout_ms)
        loop_timer_set(target->client->loop, &transfer->deadline, request->timeout_ms);
    list_append(&target->client->waiting, &transfer->node);
    loop_task_put(target->client->loop, &target->client->work);
    return transfer;
}

void http_cancel(struct http_transfer *transfer)
{
    if (!transfer->over)
        transfer_end(transfer);
}

const char *http_transfer_header(struct http_transfer *transfer, const char *name)
{
    return http1_field(&transfer->answer, name);
}

// ---- targets and the client -----------------------------------------------------------------

static void put_part(struct buf *out, CURLU *url, CURLUPart part, const char *before)
{
    char *text = NULL;
    if (curl_url_get(url, part, &text, 0) == CURLUE_OK) {
        buf_put_text(out, before);
        buf_put_text(out, text);
    }
    curl_free(text);
}

static void rebuild_head(struct http_target *target)
{
    struct buf *head = &target->head;
    buf_clear(head);
    put_part(head, target->parsed, CURLUPART_PATH, "");
    put_part(head, target->parsed, CURLUPART_QUERY, "?");
    put_part(head, target->parsed, CURLUPART_HOST, " HTTP/1.1\r\nHost: ");
    put_part(head, target->parsed, CURLUPART_PORT, ":");
    buf_put_text(head, "\r\nUser-Agent: postern/" POSTERN_VERSION "\r\n");
    for (size_t i = 0; i < target->header_count; i++)
        buf_printf(head, "%s: %s\r\n", target->headers[i].name, target->headers[i].value);
}

struct http_target *http_target_new(struct http_client *client, const char *url, int64_t connect_timeout_ms)
{
    struct http_target *target = mem_new(struct http_target);
    target->client = client;
    target->url = mem_string(url);
    target->connect_timeout_ms = connect_timeout_ms;
    target->loopback = http_url_is_loopback(url);
    target->secure = strncasecmp(url, "https:", 6) == 0;
    list_init(&target->idle);
    target->parsed = curl_url();
    if (curl_url_set(target->parsed, CURLUPART_URL, url, 0) != CURLUE_OK) {
        curl_url_cleanup(target->parsed);
        target->parsed = NULL;
    }
    rebuild_head(target);
    return target;
}

static void target_release(struct http_target *target)
{
    list_each(node, &target->idle)
        connection_retire(list_entry(node, struct connection, target_node));
    for (size_t i = 0; i < target->header_count; i++) {
        free(target->headers[i].name);
        free(target->headers[i].value);
    }
    free(target->headers);
    buf_release(&target->head);
    curl_url_cleanup(target->parsed);
    free(target->url);
    free(target);
}

void http_target_free(struct http_target *target)
{
    if (!target)
        return;
    target->orphan = true;
    if (target->running == 0)
        target_release(target);
}

void http_target_header(struct http_target *target, const char *name, const char *value)
{
    size_t at = 0;
    while (at < target->header_count && strcasecmp(target->headers[at].name, name) != 0)
        at++;
    if (at == target->header_count) {
        if (!value)
            return;
        target->headers = mem_resize(target->headers, (at + 1) * sizeof *target->headers);
        target->headers[target->header_count++] = (struct header){mem_string(name), mem_string(value)};
    } else if (value) {
        if (strcmp(target->headers[at].value, value) == 0)
            return;
        free(target->headers[at].value);
        target->headers[at].value = mem_string(value);
    } else {
        free(target->headers[at].name);
        free(target->headers[at].value);
        target->headers[at] = target->headers[--target->header_count];
    }
    rebuild_head(target);
}

struct http_client *http_client_new(struct loop *loop, struct err *err)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct http_client *client = mem_new(struct http_client);
    client->loop = loop;
    client->multi = curl_multi_init();
    if (!client->multi) {
        (void)err_set(err, ERR_SYSTEM, "curl_multi_init failed");
        free(client);
        return NULL;
    }
    client->timer = (struct loop_timer){.on_due = on_timer, .arg = client};
    client->more = (struct loop_timer){.on_due = on_more, .arg = client};
    client->expiry = (struct loop_timer){.on_due = on_expiry, .arg = client};
    client->work = (struct loop_task){.run = on_work, .arg = client};
    list_init(&client->waiting);
    list_init(&client->unread);
    list_init(&client->idle);
    list_init(&client->retired);
    client->room = mem_alloc(READ_BYTES);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    return client;
}

void http_client_free(struct http_client *client)
{
    if (!client)
        return;
    loop_task_drop(&client->work);
    on_work(&client->work);
    loop_timer_stop(client->loop, &client->timer);
    loop_timer_stop(client->loop, &client->expiry);
    loop_timer_stop(client->loop, &client->more);
    curl_multi_cleanup(client->multi);
    loop_task_drop(&client->work);
    loop_timer_stop(client->loop, &client->timer);
    for (size_t i = 0; i < client->socket_room; i++)
        free(client->sockets[i]);
    free(client->sockets);
    free(client->room);
    free(client);
}
