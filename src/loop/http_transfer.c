// Owns transfers: a request that is sent on a connection, its answer, and how it ends.
//
//   waiting ─► connecting ─► exchanging ─► done
//
// A whole transfer by curl costs more than the rest of a call (docs/performance.md), so curl only opens connections,
// http1.c reads the answers, and a connection that can be reused waits for the next transfer to its target. The
// client's `start` task starts transfers at the end of the turn. So requests of one turn are sent in one burst, and no
// callback has an object freed that it uses.
#include "base/clock.h"
#include "base/mem.h"
#include "http_state.h"
#include <stdlib.h>

// Of one connection in a turn, so that others are served, too.
#define READS_A_TURN 8
#define SENDS_A_TURN 8
#define MORE_MS 1  // until the other connections have had their turn
#define RETRY_AFTER_MAX_S 86400

void http_transfer_free(struct http_transfer *transfer)
{
    http1_release(&transfer->answer);
    http_outgoing_release(&transfer->request);
    free(transfer);
}

// The transfer is kept, with its buffers, for the next one.
static void transfer_reap(void *object)
{
    struct http_transfer *transfer = object;
    struct http_client *client = transfer->client;
    buf_release(&transfer->held);
    if (client->spare_count + 1 > MEM_SPARES) {
        http_transfer_free(transfer);
        return;
    }
    http1_clear(&transfer->answer);
    http_outgoing_clear(&transfer->request);
    *transfer = (struct http_transfer){.client = client, .answer = transfer->answer, .request = transfer->request};
    list_append(&client->spare, &transfer->node);
    client->spare_count++;
}

static struct http_transfer *transfer_new(struct http_client *client)
{
    if (list_empty(&client->spare)) {
        struct http_transfer *transfer = mem_new(struct http_transfer);
        transfer->client = client;
        return transfer;
    }
    struct http_transfer *transfer = list_entry(client->spare.prev, struct http_transfer, node);
    list_remove(&transfer->node);
    client->spare_count--;
    return transfer;
}

// No callback follows. Its connection is retired, unless it has been detached before.
static void transfer_end(struct http_transfer *transfer)
{
    struct http_target *target = transfer->target;
    transfer->over = true;
    if (transfer->connection)
        http_connection_retire(transfer->connection);
    transfer->connection = NULL;
    list_remove(&transfer->node);
    loop_timer_stop(target->client->loop, &transfer->deadline);
    loop_reap(target->client->loop, transfer, transfer_reap);
    if (--target->running == 0 && target->orphan)
        http_target_release(target);
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

// A connection kept from an earlier exchange was closed without an answer: the server may have closed it before it read
// the request. A request that the server may have read completely is sent at most once, unless it is harmless.
static bool may_repeat(const struct http_transfer *transfer, bool closed)
{
    const struct http_connection *connection = transfer->connection;
    if (!connection->used || transfer->answered || transfer->retried)
        return false;
    return transfer->harmless || !http_outgoing_sent(&transfer->request) ||
           (closed && http_connection_unheard(connection));
}

// The connection was closed, or broke: the request is retried once on a new connection, or fails.
static void transfer_lost(struct http_transfer *transfer, bool closed, const char *why)
{
    struct http_client *client = transfer->target->client;
    if (may_repeat(transfer, closed)) {
        http_connection_retire(transfer->connection);
        transfer->connection = NULL;
        transfer->retried = true;
        http_outgoing_rewind(&transfer->request);
        list_append(&client->waiting, &transfer->node);
        loop_task_put(client->loop, &client->start);
        return;
    }
    transfer_fail(transfer, ERR_UPSTREAM_DIED, why);
}

static void on_deadline(struct loop_timer *timer)
{
    transfer_fail(timer->arg, ERR_UPSTREAM_TIMEOUT, "timed out waiting for the complete response");
}

static void transfer_watch(struct http_transfer *transfer)
{
    unsigned events = http_outgoing_sent(&transfer->request) ? LOOP_READ : LOOP_READ | LOOP_WRITE;
    struct err err;
    if (!http_connection_watch(transfer->connection, events, &err))
        transfer_fail(transfer, err.code, err.detail);
}

static void transfer_send(struct http_transfer *transfer)
{
    struct http_outgoing *request = &transfer->request;
    if (request->sent == 0 && transfer->events->may_send && !transfer->events->may_send(transfer->arg))
        return;
    for (int i = 0; i < SENDS_A_TURN && !http_outgoing_sent(request); i++) {
        ssize_t count = http_outgoing_send(request, transfer->connection);
        if (count == HTTP_LATER)
            break;
        if (count == HTTP_BROKEN) {
            transfer_lost(transfer, false, "the connection was lost while the request was sent");
            return;
        }
    }
    transfer_watch(transfer);
}

// The answer is complete: the connection is kept if it can be reused, and closed otherwise.
static void transfer_complete(struct http_transfer *transfer, bool clean)
{
    struct http_connection *connection = transfer->connection;
    if (clean && transfer->answer.keep && http_outgoing_sent(&transfer->request) && !transfer->target->orphan) {
        transfer->connection = NULL;
        http_connection_rest(connection, transfer->answer.keep_s);
    }
    transfer_done(transfer, NULL);
}

// False: stop reading now, because the transfer is over or paused.
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
            if (http_outgoing_sent(&transfer->request))  // a retry is not possible any more
                http_outgoing_clear(&transfer->request);
            transfer->events->on_head(transfer->arg, transfer, transfer->answer.status);
            break;
        case HTTP1_BODY:
            if (!transfer->events->on_data(transfer->arg, piece) && !transfer->over)
                transfer_fail(transfer, ERR_UPSTREAM_TRANSPORT, "the response was rejected before its end");
            break;
        case HTTP1_END: transfer_complete(transfer, bytes.len == 0); return false;
        }
        if (transfer->over)
            return false;
        if (transfer->paused) {
            buf_put_span(&transfer->held, bytes);
            return false;
        }
    }
}

// Delivers the bytes that came before the pause.
static bool transfer_feed_held(struct http_transfer *transfer)
{
    struct buf held = transfer->held;
    transfer->held = (struct buf){0};
    bool more = transfer_feed(transfer, buf_span(&held));
    buf_release(&held);
    return more;
}

static void transfer_at_close(struct http_transfer *transfer)
{
    if (http1_ends(&transfer->answer))
        transfer_complete(transfer, false);
    else
        transfer_lost(transfer, true,
                      transfer->answered ? "the server closed the connection in the middle of its response"
                                         : "the server closed the connection without a response");
}

// Where the next bytes are read to. A body of known length is read into the owner's memory, if body_room() provides it,
// with one byte more: a byte after the body shows that the connection cannot be reused.
static char *transfer_room(struct http_transfer *transfer, size_t *size)
{
    const struct http1 *answer = &transfer->answer;
    char *room = NULL;
    *size = answer->state == HTTP1_AT_BODY ? (size_t)answer->left + 1 : 0;
    if (*size && transfer->events->body_room)
        room = transfer->events->body_room(transfer->arg, *size);
    if (room)
        return room;
    *size = transfer->answered ? HTTP_READ_BYTES : HTTP_FIRST_BYTES;
    return transfer->target->client->room;
}

static void connection_read(struct http_connection *connection)
{
    struct http_transfer *transfer = connection->transfer;
    struct http_client *client = connection->target->client;
    for (int i = 0; i < READS_A_TURN; i++) {
        size_t size;
        char *room = transfer_room(transfer, &size);
        ssize_t count = http_connection_receive(connection, room, size);
        if (count == HTTP_LATER)
            return;
        if (count == HTTP_BROKEN) {
            transfer_lost(transfer, false, "the connection was lost while the response was read");
            return;
        }
        if (!count) {
            transfer_at_close(transfer);
            return;
        }
        if (!transfer_feed(transfer, span_make(room, (size_t)count)))
            return;
        if ((size_t)count < size && connection->plain)  // with TLS, curl may have buffered more than the socket reports
            return;
    }
    if (connection->plain)
        return;  // the socket will report more data
    list_append(&client->unread, &connection->node);
    loop_timer_set(client->loop, &client->more, MORE_MS);
}

// Data may be buffered that the socket does not report. A connection that was paused is watched again.
void http_transfer_read_on(struct http_connection *connection)
{
    struct http_transfer *transfer = connection->transfer;
    if (transfer->paused)
        return;
    if (!connection->socket->watch.added) {
        transfer_watch(transfer);
        if (transfer->over || !transfer_feed_held(transfer))
            return;
    }
    connection_read(connection);
}

void http_transfer_ready(struct http_connection *connection, unsigned events)
{
    if (connection->retired)
        return;
    if (!connection->transfer) {  // idle: the server closed it, or sent unsolicited bytes
        http_connection_retire(connection);
        return;
    }
    if (connection->transfer->paused)  // since the loop looked
        return;
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

static void fail_opening(struct http_transfer *transfer, CURLcode code, const char *problem)
{
    struct buf why = {0};
    buf_put_text(&why, problem);
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        buf_put_text(
            &why,
            "; its certificate must be valid for this name and date, and issued by a trusted authority: one of the "
            "system's, or one in the server's tls.ca_file");
    transfer_fail(transfer, failure_of(code), buf_text(&why));
    buf_release(&why);
}

// curl has opened a connection, or failed.
void http_transfer_opened(struct http_connection *connection, CURLcode code)
{
    struct http_transfer *transfer = connection->transfer;
    curl_socket_t fd = CURL_SOCKET_BAD;
    if (connection->retired)
        return;
    if (code == CURLE_OK)
        curl_easy_getinfo(connection->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (connection->disallowed) {
        transfer_fail(transfer, ERR_DENIED,
                      "connections to its address are not allowed; see allow_addresses in docs/oauth.md");
        return;
    }
    if (fd == CURL_SOCKET_BAD) {
        fail_opening(transfer, code, *connection->problem ? connection->problem : curl_easy_strerror(code));
        return;
    }
    http_connection_opened(connection, fd);
    transfer_send(transfer);
}

// The limit keeps one server from using up the descriptors, however many of its answers are outstanding. True: a
// connection is opened for the transfer.
bool http_transfer_go(struct http_transfer *transfer)
{
    struct http_target *target = transfer->target;
    if (target->busy[transfer->urgent] >= (transfer->urgent ? HTTP_BUSY_URGENT_MAX : HTTP_BUSY_MAX)) {
        list_append(&target->client->waiting, &transfer->node);  // until one of its connections becomes free
        return false;
    }
    struct http_connection *connection = transfer->retried ? NULL : http_connection_find_idle(target);
    bool open = connection != NULL;
    if (!open)
        connection = http_connection_new(target);
    target->busy[transfer->urgent]++;
    connection->transfer = transfer;
    transfer->connection = connection;
    if (open)
        transfer_send(transfer);
    else
        curl_multi_add_handle(target->client->multi, connection->easy);
    return !open;
}

struct http_transfer *http_transfer_start(struct http_target *target, const struct http_request *request)
{
    struct http_transfer *transfer = transfer_new(target->client);
    transfer->target = target;
    transfer->events = request->events;
    transfer->arg = request->arg;
    transfer->harmless = request->method == HTTP_GET;
    transfer->urgent = request->urgent;
    target->running++;
    http_outgoing_init(&transfer->request, target, request);
    transfer->deadline = (struct loop_timer){.on_due = on_deadline, .arg = transfer, .name = "http deadline"};
    if (request->timeout_ms)
        loop_timer_set(target->client->loop, &transfer->deadline, request->timeout_ms);
    list_append(&target->client->waiting, &transfer->node);
    loop_task_put(target->client->loop, &target->client->start);
    return transfer;
}

void http_transfer_cancel(struct http_transfer *transfer)
{
    if (!transfer->over)
        transfer_end(transfer);
}

void http_transfer_pause(struct http_transfer *transfer)
{
    if (transfer->over || transfer->paused)
        return;
    transfer->paused = true;
    loop_unwatch(transfer->target->client->loop, &transfer->connection->socket->watch);
}

void http_transfer_resume(struct http_transfer *transfer)
{
    struct http_client *client = transfer->target->client;
    if (transfer->over || !transfer->paused)
        return;
    transfer->paused = false;
    if (!list_linked(&transfer->connection->node))
        list_append(&client->unread, &transfer->connection->node);
    loop_timer_set(client->loop, &client->more, 0);
}

bool http_transfer_unsent(const struct http_transfer *transfer)
{
    return transfer->request.sent == 0 && !transfer->answered && !transfer->retried;
}

const char *http_transfer_header_at(struct http_transfer *transfer, const char *name, size_t index)
{
    return http1_field(&transfer->answer, name, index);
}

const char *http_transfer_header(struct http_transfer *transfer, const char *name)
{
    return http_transfer_header_at(transfer, name, 0);
}

int64_t http_transfer_retry_after(struct http_transfer *transfer)
{
    const char *text = http_transfer_header(transfer, "retry-after");
    if (!text || !*text)
        return 0;
    int64_t after = 0;
    if (text[strspn(text, "0123456789")] == '\0')
        after = strtoll(text, NULL, 10);
    else if (*text >= 'A' && *text <= 'Z')  // a date begins with the day of the week; curl_getdate() accepts more
        after = (int64_t)curl_getdate(text, NULL) - clock_wall_s();
    return after <= 0 ? 0 : (after < RETRY_AFTER_MAX_S ? after : RETRY_AFTER_MAX_S) * 1000;
}

const char *http_transfer_address(struct http_transfer *transfer)
{
    const struct http_connection *connection = transfer->connection;
    return connection && *connection->address ? connection->address : NULL;
}
