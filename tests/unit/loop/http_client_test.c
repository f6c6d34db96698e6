// Tests the HTTP client against a scripted server on the same loop: reused and stale connections, lost connections, cancelling.
#include "base/pieces.h"
#include "listen.h"
#include "loop/http_client.h"
#include "loop/http_url.h"
#include "loop/loop.h"
#include "unit.h"
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: value\r\n\r\nok"
#define WAIT_MS 10000

// The reaction of the server to each request, in order of arrival on any connection.
struct step {
    const char *answer;  // NULL: no answer
    bool closes;         // closes the connection afterwards
    size_t wants;        // bytes of the request to read first; 0: its head
    bool deaf;           // reads no more from this connection
};

static struct loop *loop;
static struct http_client *client;
static struct http_target *target;
static struct loop_watch listener, peers[16];
static struct buf requests[16];
static bool deaf[16];
static size_t accepted, step_at, await_steps;  // the loop stops after this number of steps; 0: never
static const struct step *steps;
static struct loop_timer patience;
static char url[64];

static void on_impatient(struct loop_timer *timer)
{
    (void)timer;
    fail_msg("nothing happened for %d ms", WAIT_MS);
}

static void peer_close(struct loop_watch *peer)
{
    loop_unwatch(loop, peer);
    close(peer->fd);
    peer->fd = -1;
}

static void on_peer(struct loop_watch *peer, unsigned events)
{
    (void)events;
    char bytes[65536];
    struct buf *request = &requests[peer - peers];
    ssize_t count = recv(peer->fd, bytes, sizeof bytes, 0);
    if (count <= 0) {
        peer_close(peer);
        return;
    }
    buf_put(request, bytes, (size_t)count);
    const struct step *step = &steps[step_at];
    if (deaf[peer - peers])
        return;
    if (step->wants ? request->len < step->wants : !memmem(request->at, request->len, "\r\n\r\n", 4))
        return;
    if (++step_at == await_steps)
        loop_stop(loop);
    deaf[peer - peers] = step->deaf;
    if (step->answer)
        assert_int_equal(send(peer->fd, step->answer, strlen(step->answer), MSG_NOSIGNAL), strlen(step->answer));
    if (step->closes)
        peer_close(peer);
    else if (step->answer)
        buf_clear(request);
}

static void on_accept(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct err err;
    assert_true(accepted < COUNT(peers));
    struct loop_watch *peer = &peers[accepted];
    deaf[accepted++] = false;
    *peer = (struct loop_watch){.fd = accept(watch->fd, NULL, NULL), .on_ready = on_peer};
    assert_true(peer->fd >= 0 && loop_watch(loop, peer, LOOP_READ, &err));
}

static int set_up(void **state)
{
    (void)state;
    struct err err;
    unsigned port;
    loop = loop_new(&err);
    client = http_client_new(loop, &err);
    if (!loop || !client)
        return -1;
    listener = (struct loop_watch){.fd = listen_on_loopback(&port), .on_ready = on_accept};
    snprintf(url, sizeof url, "http://127.0.0.1:%u/mcp?x=1", port);
    target = http_target_new(client, url, 2000);
    accepted = step_at = await_steps = 0;
    patience = (struct loop_timer){.on_due = on_impatient};
    loop_timer_set(loop, &patience, WAIT_MS);
    return loop_watch(loop, &listener, LOOP_READ, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    http_target_free(target);
    http_client_free(client);
    loop_timer_stop(loop, &patience);
    for (size_t i = 0; i < accepted; i++) {
        if (peers[i].fd >= 0)
            peer_close(&peers[i]);
        buf_release(&requests[i]);
    }
    peer_close(&listener);
    loop_free(loop);
    return 0;
}

// ---- a caller that records its events -------------------------------------------------------

struct caller {
    struct buf heard;  // "200 ok." or "200 o!CODE"
    struct http_transfer *transfer;
    struct loop_timer pause;
    char cancel_at;  // cancels in on_head ('h') or on_data ('d')
    bool pauses;     // pauses for a while in each on_data
    bool refuses;    // refuses the body
    bool waits;      // does not stop the loop
};

static void cancel(struct caller *caller)
{
    http_transfer_cancel(caller->transfer);
    buf_put_text(&caller->heard, "cancelled");
    loop_stop(loop);
}

static void on_head(void *arg, struct http_transfer *transfer, int status)
{
    struct caller *caller = arg;
    assert_ptr_equal(transfer, caller->transfer);
    buf_printf(&caller->heard, "%d ", status);
    if (status == 200)
        assert_string_equal(http_transfer_header(transfer, "x-name"), "value");
    if (caller->cancel_at == 'h')
        cancel(caller);
}

static void go_on(struct loop_timer *timer)
{
    struct caller *caller = timer->arg;
    buf_put_char(&caller->heard, ')');
    http_transfer_resume(caller->transfer);
    buf_put_char(&caller->heard, '+');
}

static bool on_data(void *arg, struct span bytes)
{
    struct caller *caller = arg;
    buf_put_span(&caller->heard, bytes);
    if (caller->pauses) {
        http_transfer_pause(caller->transfer);
        buf_put_char(&caller->heard, '(');
        caller->pause = (struct loop_timer){.on_due = go_on, .arg = caller};
        loop_timer_set(loop, &caller->pause, 5);
    }
    if (caller->cancel_at == 'd')
        cancel(caller);
    return !caller->refuses;
}

static void on_done(void *arg, const struct err *err)
{
    struct caller *caller = arg;
    if (err)
        buf_printf(&caller->heard, "!%d", (int)err->code);
    else
        buf_put_char(&caller->heard, '.');
    if (!caller->waits)
        loop_stop(loop);
}

static const struct http_events events = {on_head, on_data, on_done, NULL, NULL};

static void start(struct caller *caller, struct span body, int64_t timeout_ms)
{
    struct http_request request = {.body = body, .timeout_ms = timeout_ms, .events = &events, .arg = caller};
    caller->transfer = http_transfer_start(target, &request);
}

// Runs one exchange and compares the events.
static void exchange(const char *want)
{
    struct caller caller = {0};
    start(&caller, SPAN("{}"), 0);
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), want);
    buf_release(&caller.heard);
}

static void expect_failure(enum err_code code)
{
    char want[16];
    snprintf(want, sizeof want, "!%d", (int)code);
    exchange(want);
}

// ---- tests ----------------------------------------------------------------------------------

static void a_request_is_sent_whole_and_its_connection_kept(void **state)
{
    (void)state;
    struct caller caller = {0};
    struct http_request request = {
        .method = HTTP_GET, .extra_header = "Last-Event-ID: 7", .timeout_ms = 200, .events = &events, .arg = &caller};
    steps = (const struct step[]){{ANSWER, false, 0, false}, {ANSWER, false, 0, false}, {NULL, false, 0, false}};
    http_target_header(target, "Accept", "text/plain");
    http_target_header(target, "accept", "application/json");
    http_target_header(target, "X-Gone", "1");
    http_target_header(target, "X-Gone", NULL);
    exchange("200 ok.");
    exchange("200 ok.");
    caller.transfer = http_transfer_start(target, &request);
    loop_run(loop);  // the server does not answer, so that the request can be examined after the timeout
    const char *heard = buf_text(&requests[0]);
    assert_contains(heard, "GET /mcp?x=1 HTTP/1.1\r\nHost: 127.0.0.1:");
    assert_contains(heard, "\r\nAccept: application/json\r\n");
    assert_contains(heard, "\r\nLast-Event-ID: 7\r\n\r\n");
    assert_null(strstr(heard, "X-Gone"));
    assert_null(strstr(heard, "Content-Length"));
    assert_int_equal(accepted, 1);
    buf_release(&caller.heard);
}

static void close_first_peer(struct loop_task *task)
{
    (void)task;
    peer_close(&peers[0]);
}

// The server closes the kept connection after the loop has polled it and before the request is sent.
static void a_kept_connection_that_the_server_closed_is_not_reused(void **state)
{
    (void)state;
    struct loop_task closing = {.run = close_first_peer};
    steps = (const struct step[]){{ANSWER, false, 0, false}, {ANSWER, false, 0, false}};
    exchange("200 ok.");
    loop_task_put(loop, &closing);
    exchange("200 ok.");
    assert_int_equal(accepted, 2);
    assert_int_equal(step_at, 2);
}

// A server that announces to close after a second might do so while the next request is on its way.
static void a_connection_that_the_server_will_close_soon_is_not_used_again(void **state)
{
    (void)state;
    static const char soon[] =
        "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nX-Name: value\r\nContent-Length: 2\r\n\r\nok";
    static const char later[] =
        "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nX-Name: value\r\nContent-Length: 2\r\n\r\nok";
    steps = (const struct step[]){{later, false, 0, false}, {soon, false, 0, false}, {ANSWER, false, 0, false}};
    exchange("200 ok.");
    exchange("200 ok.");
    assert_int_equal(accepted, 1);
    exchange("200 ok.");
    assert_int_equal(accepted, 2);
}

static void get(const char *want)
{
    struct caller caller = {0};
    struct http_request request = {.method = HTTP_GET, .events = &events, .arg = &caller};
    caller.transfer = http_transfer_start(target, &request);
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), want);
    buf_release(&caller.heard);
}

static void a_safe_request_is_retried_once_when_a_kept_connection_closes(void **state)
{
    (void)state;
    steps = (const struct step[]){{ANSWER, false, 0, false}, {NULL, true, 0, false}, {ANSWER, false, 0, false}};
    exchange("200 ok.");
    get("200 ok.");  // the server closed the kept connection without an answer
    assert_int_equal(accepted, 2);
    assert_int_equal(step_at, 3);
}

static void a_request_is_never_sent_a_third_time(void **state)
{
    (void)state;
    char want[16];
    steps = (const struct step[]){
        {ANSWER, false, 0, false}, {NULL, true, 0, false}, {NULL, true, 0, false}, {ANSWER, false, 0, false}};
    exchange("200 ok.");
    snprintf(want, sizeof want, "!%d", (int)ERR_UPSTREAM_DIED);
    get(want);
    assert_int_equal(step_at, 3);
}

static void a_post_that_the_server_received_is_never_sent_again(void **state)
{
    (void)state;
    steps = (const struct step[]){{ANSWER, false, 0, false}, {NULL, true, 0, false}, {ANSWER, false, 0, false}};
    exchange("200 ok.");
    expect_failure(ERR_UPSTREAM_DIED);
    assert_int_equal(accepted, 1);
    assert_int_equal(step_at, 2);
}

// ---- a caller with a buffer for the body ----------------------------------------------------

struct placed {
    struct buf body;
    size_t in_place;  // bytes that were read directly into `body`
};

static void on_placed_head(void *arg, struct http_transfer *transfer, int status)
{
    struct placed *placed = arg;
    (void)transfer;
    assert_int_equal(status, 200);
    buf_reserve(&placed->body, 65536);
}

static char *placed_room(void *arg, size_t bytes)
{
    struct placed *placed = arg;
    assert_true(bytes <= placed->body.room - placed->body.len);
    return placed->body.at + placed->body.len;
}

static bool on_placed_data(void *arg, struct span bytes)
{
    struct placed *placed = arg;
    if (bytes.at == placed->body.at + placed->body.len) {
        placed->in_place += bytes.len;
        placed->body.len += bytes.len;
    } else {
        buf_put_span(&placed->body, bytes);
    }
    return true;
}

static void on_placed_done(void *arg, const struct err *err)
{
    (void)arg;
    assert_null(err);
    loop_stop(loop);
}

// Bytes after the body are detected, too: the connection is not used again.
static void a_body_of_known_length_is_read_into_its_final_buffer(void **state)
{
    (void)state;
    static const struct http_events placed_events = {on_placed_head, on_placed_data, on_placed_done, NULL, placed_room};
    struct placed placed = {0};
    struct http_request request = {.events = &placed_events, .arg = &placed};
    struct buf answer = {0}, body = {0};
    for (int i = 0; i < 10000; i++)
        buf_printf(&body, "%04d", i);
    buf_put_text(&answer, "HTTP/1.1 200 OK\r\nContent-Length: 40000\r\nX-Name: value\r\n\r\n");
    buf_put_span(&answer, buf_span(&body));
    buf_put_text(&answer, "HTTP/1.1 200 OK\r\n");
    steps = (const struct step[]){{buf_text(&answer), false, 0, false}, {ANSWER, false, 0, false}};
    http_transfer_start(target, &request);
    loop_run(loop);
    assert_string_equal(buf_text(&placed.body), buf_text(&body));
    assert_true(placed.in_place >= 20000);
    exchange("200 ok.");
    assert_int_equal(accepted, 2);
    buf_release(&placed.body);
    buf_release(&answer);
    buf_release(&body);
}

// The server stops reading before it has received the whole request.
static void hang_up(struct loop_timer *timer)
{
    int waiting = 0;
    assert_int_equal(ioctl(peers[0].fd, FIONREAD, &waiting), 0);
    if (waiting)
        shutdown(peers[0].fd, SHUT_WR);
    else
        loop_timer_set(loop, timer, 1);
}

static void a_post_that_the_server_did_not_receive_whole_is_sent_again(void **state)
{
    (void)state;
    struct buf body = {0};
    struct caller caller = {0};
    struct loop_timer closing = {.on_due = hang_up};
    int small = 4096;
    assert_int_equal(setsockopt(listener.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    while (body.len < 65536)
        buf_put_text(&body, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    steps = (const struct step[]){{ANSWER, false, 0, false}, {ANSWER, false, body.len + 64, false}};
    exchange("200 ok.");
    loop_unwatch(loop, &peers[0]);
    loop_timer_set(loop, &closing, 1);
    start(&caller, buf_span(&body), 0);
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), "200 ok.");
    assert_int_equal(accepted, 2);
    buf_release(&caller.heard);
    buf_release(&body);
}

// Each chunk is a callback. The next chunk, the end, and the next exchange wait until the transfer is resumed.
static void a_paused_transfer_does_not_deliver_data_until_it_is_resumed(void **state)
{
    (void)state;
    struct caller caller = {.pauses = true};
    steps = (const struct step[]){
        {"HTTP/1.1 200 OK\r\nX-Name: value\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", false,
         0, false},
        {ANSWER, false, 0, false},
        {"HTTP/1.1 200 OK\r\nX-Name: value\r\n\r\nto the end", true, 0, false}};
    start(&caller, SPAN("{}"), 0);
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), "200 a()+bc()+.");
    buf_clear(&caller.heard);
    start(&caller, SPAN("{}"), 0);
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), "200 ok()+.");
    assert_int_equal(accepted, 1);
    buf_clear(&caller.heard);
    start(&caller, SPAN("{}"), 0);
    loop_run(loop);  // the server closes while it is paused
    assert_string_equal(buf_text(&caller.heard), "200 to the end()+.");
    buf_release(&caller.heard);
}

static void a_paused_transfer_can_be_cancelled(void **state)
{
    (void)state;
    struct caller caller = {.pauses = true, .cancel_at = 'd'};
    steps = (const struct step[]){{ANSWER, false, 0, false}, {ANSWER, false, 0, false}};
    start(&caller, SPAN("{}"), 0);
    loop_run(loop);
    loop_timer_stop(loop, &caller.pause);
    assert_string_equal(buf_text(&caller.heard), "200 ok(cancelled");
    buf_release(&caller.heard);
    exchange("200 ok.");
}

// Returns the text "#0123..." of PARTS_BYTES, in parts of which the first is copied.
#define PARTS_BYTES ((size_t)8 << 20)
static struct blob *text_in_parts(void)
{
    struct pieces pieces = {0};
    struct buf line = {0};
    buf_put_char(&pieces.tail, '#');
    for (int i = 0; i < 4096; i++)
        buf_put_int(&line, i);
    struct blob *shared = blob_take(&line);
    while (pieces_len(&pieces) + shared->len <= PARTS_BYTES)
        pieces_share(&pieces, shared, blob_span(shared));
    pieces_share(&pieces, shared, span_make(shared->at, PARTS_BYTES - pieces_len(&pieces)));
    blob_unref(shared);
    return pieces_take(&pieces);
}

static char *flat(struct blob *text)
{
    char *out = test_malloc(text->len);
    assert_int_equal(blob_read(&(struct blob_reader){.blob = text}, out, text->len), text->len);
    return out;
}

// The body is in parts. It is not copied and arrives unchanged, also when it is sent again.
static void a_body_by_reference_is_sent_and_sent_again(void **state)
{
    (void)state;
    struct caller caller = {0};
    struct blob *text = text_in_parts();
    struct http_request request = {.body = SPAN("head"), .large = text, .events = &events, .arg = &caller};
    struct loop_timer closing = {.on_due = hang_up};
    int small = 4096;
    assert_int_equal(setsockopt(listener.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    steps = (const struct step[]){{ANSWER, false, 0, false}, {NULL, false, text->len + 4, false}};
    exchange("200 ok.");
    loop_unwatch(loop, &peers[0]);
    loop_timer_set(loop, &closing, 1);
    caller.transfer = http_transfer_start(target, &request);
    await_steps = 2;
    loop_run(loop);
    char *want = flat(text), *body = strstr(buf_text(&requests[1]), "\r\n\r\nhead");
    assert_contains(buf_text(&requests[1]), "\r\nContent-Length: 8388612\r\n");
    assert_non_null(body);
    assert_int_equal(requests[1].len - (size_t)(body + 8 - requests[1].at), text->len);
    assert_memory_equal(body + 8, want, text->len);
    test_free(want);
    http_transfer_cancel(caller.transfer);
    blob_unref(text);
}

static void a_small_body_by_reference_is_sent_whole(void **state)
{
    (void)state;
    struct caller caller = {0};
    struct blob *text = blob_copy(SPAN("{}"));
    struct http_request request = {.large = text, .events = &events, .arg = &caller};
    steps = (const struct step[]){{NULL, false, 0, false}};
    caller.transfer = http_transfer_start(target, &request);
    blob_unref(text);
    await_steps = 1;
    loop_run(loop);
    assert_contains(buf_text(&requests[0]), "\r\nContent-Length: 2\r\n\r\n{}");
    http_transfer_cancel(caller.transfer);
}

static void a_request_lost_on_a_new_connection_is_not_repeated(void **state)
{
    (void)state;
    steps = (const struct step[]){{NULL, true, 0, false}, {ANSWER, false, 0, false}};
    expect_failure(ERR_UPSTREAM_DIED);
    assert_int_equal(accepted, 1);
}

static void a_request_with_a_partial_response_is_not_repeated(void **state)
{
    (void)state;
    char want[32];
    steps = (const struct step[]){{ANSWER, false, 0, false},
                                  {"HTTP/1.1 200 OK\r\nX-Name: value\r\nContent-Length: 2\r\n\r\no", true, 0, false},
                                  {ANSWER, false, 0, false}};
    exchange("200 ok.");
    snprintf(want, sizeof want, "200 o!%d", (int)ERR_UPSTREAM_DIED);
    exchange(want);
    assert_int_equal(step_at, 2);
}

static void a_connection_that_the_server_closes_is_forgotten(void **state)
{
    (void)state;
    static const char *const closing[] = {
        "HTTP/1.1 200 OK\r\nConnection: close\r\nX-Name: value\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX-Name: value\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nX-Name: value\r\nContent-Length: 2\r\n\r\nok",
    };
    const struct step script[] = {{closing[0], true, 0, false},
                                  {closing[1], true, 0, false},
                                  {closing[2], true, 0, false},
                                  {ANSWER, false, 0, false}};
    steps = script;
    for (size_t i = 0; i < COUNT(script); i++)
        exchange("200 ok.");
    assert_int_equal(accepted, 4);
}

// Bytes after an answer would be read as the answer to the next call.
static void a_connection_with_bytes_after_the_response_is_closed(void **state)
{
    (void)state;
    steps = (const struct step[]){{ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", false, 0, false},
                                  {ANSWER, false, 0, false}};
    exchange("200 ok.");
    exchange("200 ok.");
    assert_int_equal(accepted, 2);
}

static void a_response_is_accepted_before_the_request_is_fully_sent(void **state)
{
    (void)state;
    struct buf body = {0};
    struct caller caller = {0};
    while (body.len < 16 << 20)
        buf_put_text(&body, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    steps = (const struct step[]){{"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n", false, 0, true},
                                  {ANSWER, false, 0, false}};
    start(&caller, buf_span(&body), 0);
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), "413 .");
    buf_release(&caller.heard);
    exchange("200 ok.");  // on a new connection, not after the rest of the first request
    assert_int_equal(accepted, 2);
    buf_release(&body);
}

static void a_large_request_is_sent_in_pieces(void **state)
{
    (void)state;
    struct buf body = {0};
    struct caller caller = {0};
    while (body.len < 8 << 20)
        buf_put_text(&body, "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    steps = (const struct step[]){{ANSWER, false, body.len + 64, false}};
    start(&caller, buf_span(&body), 0);
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), "200 ok.");
    buf_release(&caller.heard);
    buf_release(&body);
}

static void a_transfer_times_out_with_an_error(void **state)
{
    (void)state;
    struct caller caller = {0};
    char want[16];
    steps = (const struct step[]){{NULL, false, 0, false}};
    start(&caller, SPAN("{}"), 50);
    loop_run(loop);
    snprintf(want, sizeof want, "!%d", (int)ERR_UPSTREAM_TIMEOUT);
    assert_string_equal(buf_text(&caller.heard), want);
    buf_release(&caller.heard);
}

static void a_refused_connection_is_reported(void **state)
{
    (void)state;
    loop_unwatch(loop, &listener);
    close(listener.fd);
    listener.fd = -1;
    expect_failure(ERR_UNAVAILABLE);
}

static void a_response_that_is_not_http_is_refused(void **state)
{
    (void)state;
    steps = (const struct step[]){{"SSH-2.0-OpenSSH_9\r\n", false, 0, false}};
    expect_failure(ERR_UPSTREAM_TRANSPORT);
}

static void a_cancelled_transfer_is_not_called_back(void **state)
{
    (void)state;
    static const char at[] = {'h', 'd'};
    steps = (const struct step[]){{ANSWER, false, 0, false}, {ANSWER, false, 0, false}, {ANSWER, false, 0, false}};
    for (size_t i = 0; i < COUNT(at); i++) {
        struct caller caller = {.cancel_at = at[i]};
        start(&caller, SPAN("{}"), 0);
        loop_run(loop);
        assert_string_equal(buf_text(&caller.heard), at[i] == 'h' ? "200 cancelled" : "200 okcancelled");
        buf_release(&caller.heard);
    }
    struct caller early = {0};
    start(&early, SPAN("{}"), 0);
    http_transfer_cancel(early.transfer);  // before its connection is opened
    exchange("200 ok.");
    assert_int_equal(early.heard.len, 0);
}

static void a_transfer_whose_body_is_refused_ends(void **state)
{
    (void)state;
    struct caller caller = {.refuses = true};
    char want[32];
    steps = (const struct step[]){{ANSWER, false, 0, false}};
    start(&caller, SPAN("{}"), 0);
    loop_run(loop);
    snprintf(want, sizeof want, "200 ok!%d", (int)ERR_UPSTREAM_TRANSPORT);
    assert_string_equal(buf_text(&caller.heard), want);
    buf_release(&caller.heard);
}

// If its target is freed, a transfer ends as usual.
static void a_transfer_outlives_its_target(void **state)
{
    (void)state;
    struct caller caller = {0};
    steps = (const struct step[]){{ANSWER, false, 0, false}};
    start(&caller, SPAN("{}"), 0);
    http_target_free(target);
    target = NULL;
    loop_run(loop);
    assert_string_equal(buf_text(&caller.heard), "200 ok.");
    buf_release(&caller.heard);
}

struct last_words {
    struct loop_task task;
    struct caller *caller;
};

static void give_up(struct loop_task *task)
{
    struct last_words *last = task->arg;
    http_transfer_cancel(last->caller->transfer);
    http_target_free(target);
    target = NULL;
    loop_stop(loop);
}

// After the connection was begun, before libcurl has done anything about it.
static void a_target_may_be_freed_in_the_turn_in_which_its_connection_begins(void **state)
{
    (void)state;
    struct caller caller = {0};
    struct last_words last = {.task = {.run = give_up, .arg = &last}, .caller = &caller};
    start(&caller, SPAN("{}"), 0);
    loop_task_put(loop, &last.task);
    loop_run(loop);
    assert_int_equal(caller.heard.len, 0);
}

static const struct url_row {
    const char *url;
    bool valid;
} urls[] = {
    {"http://127.0.0.1:1/mcp", true},    {"https://example.com", true},        {"HTTPS://example.com/x?y", true},
    {"ftp://example.com/", false},       {"example.com/mcp", false},           {"/mcp", false},
    {"http://user@example.com/", false}, {"https://u:p@example.com/x", false}, {"", false},
};

static void usable_urls_are_those_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(urls); i++)
        assert_row(http_url_valid(urls[i].url) == urls[i].valid, urls[i].url);
}

#define test(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_body_of_known_length_is_read_into_its_final_buffer),
        test(a_request_is_sent_whole_and_its_connection_kept),
        test(a_connection_that_the_server_will_close_soon_is_not_used_again),
        test(a_kept_connection_that_the_server_closed_is_not_reused),
        test(a_safe_request_is_retried_once_when_a_kept_connection_closes),
        test(a_post_that_the_server_received_is_never_sent_again),
        test(a_post_that_the_server_did_not_receive_whole_is_sent_again),
        test(a_request_is_never_sent_a_third_time),
        test(a_paused_transfer_does_not_deliver_data_until_it_is_resumed),
        test(a_paused_transfer_can_be_cancelled),
        test(a_request_lost_on_a_new_connection_is_not_repeated),
        test(a_request_with_a_partial_response_is_not_repeated),
        test(a_connection_that_the_server_closes_is_forgotten),
        test(a_connection_with_bytes_after_the_response_is_closed),
        test(a_response_is_accepted_before_the_request_is_fully_sent),
        test(a_large_request_is_sent_in_pieces),
        test(a_body_by_reference_is_sent_and_sent_again),
        test(a_small_body_by_reference_is_sent_whole),
        test(a_transfer_times_out_with_an_error),
        test(a_refused_connection_is_reported),
        test(a_response_that_is_not_http_is_refused),
        test(a_cancelled_transfer_is_not_called_back),
        test(a_transfer_whose_body_is_refused_ends),
        test(a_transfer_outlives_its_target),
        test(a_target_may_be_freed_in_the_turn_in_which_its_connection_begins),
        cmocka_unit_test(usable_urls_are_those_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
