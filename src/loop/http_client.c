// Owns libcurl: one multi handle driven by the loop, prepared easy handles, kept sockets.
//
// curl forbids its multi functions inside its callbacks, so starting and cancelling only note what is
// wanted, and the `work` task does it at the end of the turn. A socket stays in epoll when curl lets
// go of it after a transfer (it will want it back for the next call); an event on such an idle socket
// takes it out, and curl's close callback forgets it.
#include "loop/http_client.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/mem.h"
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_HANDLES_MAX 256
#define CURL_BUFFER_SIZE 32768L

struct client_socket {
    struct loop_watch watch;
    struct http_client *client;
    bool in_use;  // curl wants its events now
    bool ours;    // opened by on_curl_open, so on_curl_close will tell of its end
};

struct http_client {
    struct loop *loop;
    CURLM *multi;
    struct loop_timer timer;
    struct loop_task work;
    struct list waiting;             // transfers to add
    struct list finished;            // transfers to take out
    struct client_socket **sockets;  // by descriptor
    size_t socket_room;
    bool kick;
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
    struct curl_slist *lines;
    struct curl_slist **retired;  // older header lists, which running transfers may still use
    size_t retired_count;
    CURL *idle[IDLE_HANDLES_MAX];
    size_t idle_count;
    unsigned running;
    bool loopback;
    bool orphan;  // freed by its owner while transfers ran
    bool (*allow)(void *arg, const struct sockaddr *address);
    void *allow_arg;
    bool disallowed;  // an address was refused
};

enum transfer_state { TRANSFER_WAITING, TRANSFER_RUNNING, TRANSFER_DONE };

struct http_transfer {
    struct http_target *target;
    struct list node;
    enum transfer_state state;
    bool cancelled, head_seen;
    enum http_method method;
    CURL *easy;
    struct curl_slist *own_lines;
    char *body;
    size_t body_len;
    int64_t timeout_ms;
    const struct http_events *events;
    void *arg;
    char problem[CURL_ERROR_SIZE];
};

// ---- sockets and the timer ------------------------------------------------------------------

static void settle(struct http_client *client);

static void on_socket_ready(struct loop_watch *watch, unsigned events)
{
    struct client_socket *socket = watch->arg;
    struct http_client *client = socket->client;
    if (!socket->in_use) {  // the server closed a connection that waits for its next use
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
    struct http_target *target = arg;
    struct http_client *client = target->client;
    if (target->allow && !target->allow(target->allow_arg, &address->addr)) {
        target->disallowed = true;
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

static int on_curl_close(void *arg, curl_socket_t fd)
{
    struct http_client *client = arg;
    struct client_socket *socket = (size_t)fd < client->socket_room ? client->sockets[fd] : NULL;
    if (socket) {
        client->sockets[fd] = NULL;
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

// ---- transfers ------------------------------------------------------------------------------

static void transfer_head(struct http_transfer *transfer)
{
    if (transfer->head_seen)
        return;
    long status = 0;
    transfer->head_seen = true;
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (!transfer->cancelled)
        transfer->events->on_head(transfer->arg, transfer, (int)status);
}

static size_t on_curl_data(char *bytes, size_t size, size_t count, void *arg)
{
    struct http_transfer *transfer = arg;
    transfer_head(transfer);
    if (transfer->cancelled || !transfer->events->on_data(transfer->arg, span_make(bytes, size * count)))
        return 0;
    return size * count;
}

static CURL *handle_new(const struct http_target *target)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        abort();
    if (target->parsed)  // parsed once, not for every transfer
        curl_easy_setopt(easy, CURLOPT_CURLU, target->parsed);
    else
        curl_easy_setopt(easy, CURLOPT_URL, target->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, 60L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, CURL_BUFFER_SIZE);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)target->connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_curl_data);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_curl_open);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, target);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_curl_close);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, target->client);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "postern/" POSTERN_VERSION);
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    if (target->loopback || target->allow)  // never through a proxy of the environment
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (target->allow) {
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    }
    return easy;
}

static void transfer_prepare(struct http_transfer *transfer)
{
    struct http_target *target = transfer->target;
    bool pooled = transfer->method == HTTP_POST && target->idle_count;
    CURL *easy = transfer->easy = pooled ? target->idle[--target->idle_count] : handle_new(target);
    if (transfer->method == HTTP_GET)
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    if (transfer->method == HTTP_DELETE) {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    }
    if (transfer->method == HTTP_POST) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)transfer->body_len);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, transfer->body);
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->own_lines ? transfer->own_lines : target->lines);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)transfer->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->problem);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
}

static void drop_retired(struct http_target *target)
{
    for (size_t i = 0; i < target->retired_count; i++)
        curl_slist_free_all(target->retired[i]);
    free(target->retired);
    target->retired = NULL;
    target->retired_count = 0;
}

static void target_release(struct http_target *target)
{
    for (size_t i = 0; i < target->idle_count; i++)
        curl_easy_cleanup(target->idle[i]);
    for (size_t i = 0; i < target->header_count; i++) {
        free(target->headers[i].name);
        free(target->headers[i].value);
    }
    drop_retired(target);
    curl_slist_free_all(target->lines);
    free(target->headers);
    curl_url_cleanup(target->parsed);
    free(target->url);
    free(target);
}

static void transfer_release(struct http_transfer *transfer)
{
    struct http_target *target = transfer->target;
    if (transfer->easy) {
        if (transfer->method == HTTP_POST && target->idle_count < IDLE_HANDLES_MAX) {
            curl_easy_setopt(transfer->easy, CURLOPT_POSTFIELDS, NULL);
            curl_easy_setopt(transfer->easy, CURLOPT_ERRORBUFFER, NULL);
            target->idle[target->idle_count++] = transfer->easy;
        } else {
            curl_easy_cleanup(transfer->easy);
        }
    }
    curl_slist_free_all(transfer->own_lines);
    if (target->allow && transfer->body)  // such bodies hold secrets
        explicit_bzero(transfer->body, transfer->body_len);
    free(transfer->body);
    free(transfer);
    if (--target->running == 0)
        drop_retired(target);
    if (target->running == 0 && target->orphan)
        target_release(target);
}

static enum err_code failure_of(CURLcode code)
{
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return ERR_UPSTREAM_TIMEOUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return ERR_UNAVAILABLE;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE: return ERR_UPSTREAM_DIED;
    default: return ERR_UPSTREAM_TRANSPORT;
    }
}

static void transfer_done(struct http_transfer *transfer, CURLcode code)
{
    transfer->state = TRANSFER_DONE;
    list_append(&transfer->target->client->finished, &transfer->node);
    loop_task_put(transfer->target->client->loop, &transfer->target->client->work);
    if (transfer->cancelled)
        return;
    if (code == CURLE_OK)
        transfer_head(transfer);
    if (transfer->cancelled)
        return;
    transfer->cancelled = true;  // nothing is said after on_done
    if (code == CURLE_OK) {
        transfer->events->on_done(transfer->arg, NULL);
        return;
    }
    struct err err;
    if (transfer->target->disallowed)
        (void)err_set(&err, ERR_DENIED, "%s: its address may not be connected to from here", transfer->target->url);
    else
        (void)err_set(&err, failure_of(code), "%s: %s", transfer->target->url,
                      *transfer->problem ? transfer->problem : curl_easy_strerror(code));
    transfer->events->on_done(transfer->arg, &err);
}

// Tells the transfers that curl has finished.
static void settle(struct http_client *client)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(client->multi, &left))) {
        struct http_transfer *transfer;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        if (transfer->state == TRANSFER_RUNNING)
            transfer_done(transfer, code);
    }
}

static void on_work(struct loop_task *task)
{
    struct http_client *client = task->arg;
    list_each(node, &client->finished) {
        struct http_transfer *transfer = list_entry(node, struct http_transfer, node);
        list_remove(node);
        if (transfer->easy)
            curl_multi_remove_handle(client->multi, transfer->easy);
        transfer_release(transfer);
    }
    list_each(node, &client->waiting) {
        struct http_transfer *transfer = list_entry(node, struct http_transfer, node);
        list_remove(node);
        transfer->state = TRANSFER_RUNNING;
        transfer_prepare(transfer);
        curl_multi_add_handle(client->multi, transfer->easy);
    }
    if (client->kick) {
        int running;
        client->kick = false;
        curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        settle(client);
    }
}

struct http_transfer *http_start(struct http_target *target, const struct http_request *request)
{
    struct http_transfer *transfer = mem_new(struct http_transfer);
    *transfer = (struct http_transfer){.target = target,
                                       .method = request->method,
                                       .timeout_ms = request->timeout_ms,
                                       .events = request->events,
                                       .arg = request->arg};
    target->running++;
    if (request->method == HTTP_POST) {
        transfer->body = mem_span(request->body);
        transfer->body_len = request->body.len;
    }
    if (request->extra_header) {
        for (const struct curl_slist *line = target->lines; line; line = line->next)
            transfer->own_lines = curl_slist_append(transfer->own_lines, line->data);
        transfer->own_lines = curl_slist_append(transfer->own_lines, request->extra_header);
    }
    list_append(&target->client->waiting, &transfer->node);
    loop_task_put(target->client->loop, &target->client->work);
    return transfer;
}

void http_cancel(struct http_transfer *transfer)
{
    if (transfer->cancelled)
        return;
    struct http_client *client = transfer->target->client;
    transfer->cancelled = true;
    if (transfer->state == TRANSFER_DONE)
        return;
    transfer->state = TRANSFER_DONE;
    list_remove(&transfer->node);
    list_append(&client->finished, &transfer->node);
    loop_task_put(client->loop, &client->work);
}

const char *http_transfer_header_at(struct http_transfer *transfer, const char *name, size_t index)
{
    struct curl_header *header;
    if (curl_easy_header(transfer->easy, name, index, CURLH_HEADER, -1, &header) != CURLHE_OK)
        return NULL;
    return header->value;
}

const char *http_transfer_header(struct http_transfer *transfer, const char *name)
{
    return http_transfer_header_at(transfer, name, 0);
}

// ---- targets and the client -----------------------------------------------------------------

static bool is_loopback(const char *text)
{
    char *host = NULL;
    CURLU *url = curl_url();
    bool local = !curl_url_set(url, CURLUPART_URL, text, 0) && !curl_url_get(url, CURLUPART_HOST, &host, 0) &&
                 (strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "[::1]") == 0);
    curl_free(host);
    curl_url_cleanup(url);
    return local;
}

struct http_target *http_target_new(struct http_client *client, const char *url, int64_t connect_timeout_ms)
{
    struct http_target *target = mem_new(struct http_target);
    target->client = client;
    target->url = mem_string(url);
    target->connect_timeout_ms = connect_timeout_ms;
    target->loopback = is_loopback(url);
    target->parsed = curl_url();
    if (curl_url_set(target->parsed, CURLUPART_URL, url, 0) != CURLUE_OK) {
        curl_url_cleanup(target->parsed);
        target->parsed = NULL;  // curl itself will say what is wrong with it
    }
    http_target_header(target, "Expect", "");  // no waiting for "100 Continue"
    return target;
}

void http_target_free(struct http_target *target)
{
    if (!target)
        return;
    target->orphan = true;
    if (target->running == 0)
        target_release(target);
}

static void rebuild_lines(struct http_target *target)
{
    if (target->lines) {
        target->retired = mem_resize(target->retired, (target->retired_count + 1) * sizeof(struct curl_slist *));
        target->retired[target->retired_count++] = target->lines;
        target->lines = NULL;
    }
    for (size_t i = 0; i < target->header_count; i++) {
        struct buf line = {0};
        const struct header *header = &target->headers[i];
        buf_printf(&line, *header->value ? "%s: %s" : "%s:", header->name, header->value);
        target->lines = curl_slist_append(target->lines, buf_text(&line));
        buf_release(&line);
    }
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
    rebuild_lines(target);
}

void http_target_guard(struct http_target *target, bool (*allow)(void *arg, const struct sockaddr *address), void *arg)
{
    target->allow = allow;
    target->allow_arg = arg;
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
    client->work = (struct loop_task){.run = on_work, .arg = client};
    list_init(&client->waiting);
    list_init(&client->finished);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, 1024L);
    return client;
}

void http_client_free(struct http_client *client)
{
    if (!client)
        return;
    loop_task_drop(&client->work);
    on_work(&client->work);
    loop_timer_stop(client->loop, &client->timer);
    curl_multi_cleanup(client->multi);
    loop_task_drop(&client->work);
    loop_timer_stop(client->loop, &client->timer);
    for (size_t i = 0; i < client->socket_room; i++)
        free(client->sockets[i]);
    free(client->sockets);
    free(client);
}

// ---- URLs -----------------------------------------------------------------------------------

char *http_url_resolve(const char *base, const char *reference)
{
    char *text = NULL, *out = NULL;
    CURLU *url = curl_url();
    if (!curl_url_set(url, CURLUPART_URL, base, 0) && !curl_url_set(url, CURLUPART_URL, reference, 0) &&
        !curl_url_get(url, CURLUPART_URL, &text, 0))
        out = mem_string(text);
    curl_free(text);
    curl_url_cleanup(url);
    return out;
}

static char *origin_of(const char *text)
{
    char *scheme = NULL, *host = NULL, *port = NULL;
    struct buf out = {0};
    CURLU *url = curl_url();
    if (!curl_url_set(url, CURLUPART_URL, text, 0) && !curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) &&
        !curl_url_get(url, CURLUPART_HOST, &host, 0) && !curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT))
        buf_printf(&out, "%s://%s:%s", scheme, host, port);
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(url);
    return buf_take(&out, NULL);
}

bool http_url_same_origin(const char *a, const char *b)
{
    char *x = origin_of(a), *y = origin_of(b);
    bool same = *x && strcasecmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

bool http_url_valid(const char *url)
{
    char *origin = origin_of(url);
    bool valid = strncasecmp(origin, "http://", 7) == 0 || strncasecmp(origin, "https://", 8) == 0;
    free(origin);
    return valid;
}
