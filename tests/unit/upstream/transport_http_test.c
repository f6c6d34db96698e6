// Tests the Streamable HTTP transport against a server on the same loop: JSON and streams, lost connections, sessions, Retry-After.
#include "web_peer.h"

#define MAX 4096

// Answers the handshake, and refuses the standalone stream with 405; false for all other requests.
static bool shakes_hands(struct web *web, int fd, struct span head, struct span body)
{
    (void)web;
    if (web_has(body, "\"initialize\""))
        web_answer(fd, "200 OK", WEB_SESSION, WEB_HELLO, web_id(body));
    else if (web_has(body, "notifications/"))
        web_put(fd, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 0);
    else if (web_has(head, "GET ") && !web_has(head, "Last-Event-ID"))
        web_put(fd, "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n", 0);
    else if (web_has(head, "DELETE "))
        web_put(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0);
    else
        return false;
    return true;
}

static void call_once(struct web *web, struct web_ask *ask, size_t max,
                      void (*on_request)(struct web *, int, struct span, struct span))
{
    web_set_up(web, SERVER_HTTP, max, on_request);
    web_make_ready(web);
    web_call(web, ask);
}

static void answer_json(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    web->step += web_has(head, "Mcp-Session-Id: s1") && web_has(head, "MCP-Protocol-Version: 2025-11-25");
    web_answer(fd, "200 OK", "", WEB_RESULT, web_id(body));
}

static void requests_carry_session_and_revision_and_get_a_json_answer(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_json);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    assert_int_equal(web.step, 1);
    web_tear_down(&web);
}

static uint64_t asked;  // the id of the request that a stream answers
static struct loop_timer rest;

static void end_of_event(struct loop_timer *timer)
{
    const struct web *web = timer->arg;
    web_put(web->stream, "\"id\":$ID,\"result\":{\"n\":1.0}}\n\n", asked);
}

static void answer_split(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    asked = web_id(body);
    web->stream = fd;
    web_put(fd,
            WEB_STREAM_HEAD ": a comment\n\nevent: other\ndata: {}\n\n"
                            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n"
                            "data: {\"jsonrpc\":\"2.0\",",
            0);
    rest = (struct loop_timer){.on_due = end_of_event, .arg = web};
    loop_timer_set(web->loop, &rest, 20);
}

static void an_answer_on_a_stream_may_arrive_in_pieces_after_a_notification(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_split);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    assert_int_equal(web.notifications, 1);
    assert_true(web.of_request);
    web_tear_down(&web);
}

static char *filler(size_t bytes)
{
    char *text = calloc(bytes + 1, 1);
    memset(text, 'x', bytes);
    return text;
}

static void answer_oversized(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    char *text = filler(MAX + 1);
    web_answer(fd, "200 OK", "", text, 0);
    free(text);
}

static void an_answer_above_the_maximum_fails_its_request(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_oversized);
    assert_int_equal(ask.failure, ERR_UPSTREAM_INVALID);
    assert_contains(ask.detail, "larger than 4096 bytes");
    web_tear_down(&web);
}

static void answer_oversized_event(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    char *text = filler(2 * MAX);
    web_put(fd, WEB_STREAM_HEAD "data: ", 0);
    web_put(fd, text, 0);
    web_put(fd, "\n\n", 0);
    free(text);
}

static void an_event_above_the_maximum_fails_its_request(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_oversized_event);
    assert_int_equal(ask.failure, ERR_UPSTREAM_INVALID);
    assert_contains(ask.detail, "a message is larger than 4096 bytes");
    web_tear_down(&web);
}

static void answer_large_event(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    char *text = filler(MESSAGE_LARGE);
    web_put(fd, WEB_STREAM_HEAD "data: {\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"x\":\"", web_id(body));
    web_put(fd, text, 0);
    web_put(fd, "\"}}\n\n", 0);
    free(text);
}

static void a_large_event_is_parsed_separately_and_arrives_whole(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, 4 * MESSAGE_LARGE, answer_large_event);
    assert_int_equal(ask.failure, ERR_NONE);
    assert_int_equal(ask.result_len, MESSAGE_LARGE + sizeof "{\"x\":\"\"}" - 1);
    web_tear_down(&web);
}

static void answer_cut(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    web_put(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"jsonrpc\"", 0);
    web_hang_up(web, fd);
}

static void answer_cut_stream(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    web_put(fd, WEB_STREAM_HEAD "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n", 0);
    web_hang_up(web, fd);
}

static void a_lost_connection_fails_its_request_but_not_the_server(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_cut);
    assert_int_equal(ask.failure, ERR_UPSTREAM_DIED);
    web.on_request = answer_cut_stream;
    web_call(&web, &ask);
    assert_int_equal(ask.failure, ERR_UPSTREAM_DIED);
    assert_contains(ask.detail, "closed the stream before it answered");
    assert_int_equal(upstream_state(web.upstream), UPSTREAM_READY);
    web_tear_down(&web);
}

static void answer_resumed(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    if (web_has(head, "POST ")) {
        asked = web_id(body);
        web_put(fd, WEB_STREAM_HEAD "retry: 100\nid: 7\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n", 0);
    } else {
        web->step += web_has(head, "Last-Event-ID: 7\r\n");
        web_put(fd, WEB_STREAM_HEAD "data: " WEB_RESULT "\n\n", asked);
    }
    web_hang_up(web, fd);
}

static void a_stream_that_ends_after_an_event_id_is_resumed(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_resumed);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    assert_int_equal(web.step, 1);
    web_tear_down(&web);
}

static void answer_busy(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    if (web->step++ == 0)
        web_answer(fd, "503 Busy", "Retry-After: 7\r\n", "busy", 0);
    else
        web_answer(fd, "429 Slow", "Retry-After: 3\r\n",
                   "{\"jsonrpc\":\"2.0\",\"id\":$ID,\"error\":{\"code\":-5,\"message\":\"slow\"}}", web_id(body));
}

static void the_retry_after_of_a_response_reaches_the_reply(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_busy);
    assert_int_equal(ask.failure, ERR_UPSTREAM_TRANSPORT);
    assert_int_equal(ask.retry_after_ms, 7000);
    web_call(&web, &ask);
    assert_contains(ask.error, "\"slow\"");
    assert_int_equal(ask.retry_after_ms, 3000);
    web_tear_down(&web);
}

static void answer_forgotten(struct web *web, int fd, struct span head, struct span body)
{
    if (web_has(body, "\"initialize\""))
        web->step++;
    if (shakes_hands(web, fd, head, body))
        return;
    if (web->step == 1)
        web_answer(fd, "404 Gone", "", "", 0);
    else
        web_answer(fd, "200 OK", "", WEB_RESULT, web_id(body));
}

static void a_request_is_sent_again_when_the_server_forgot_the_session(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_forgotten);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    assert_int_equal(web.step, 2);  // the number of handshakes
    web_tear_down(&web);
}

static void answer_refused(struct web *web, int fd, struct span head, struct span body)
{
    if (!shakes_hands(web, fd, head, body))
        web_answer(fd, "404 Gone", "", "", 0);
}

static void a_request_that_is_also_refused_in_the_new_session_fails(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_refused);
    assert_int_equal(ask.failure, ERR_UPSTREAM_TRANSPORT);
    assert_contains(ask.detail, "HTTP 404");
    web_tear_down(&web);
}

// Performs each call, and answers 404. It has no sessions.
static void answer_without_sessions(struct web *web, int fd, struct span head, struct span body)
{
    if (web_has(body, "\"initialize\"")) {
        web_answer(fd, "200 OK", "", WEB_HELLO, web_id(body));
    } else if (!shakes_hands(web, fd, head, body)) {
        web->step++;
        web_answer(fd, "404 Not Found", "", "", 0);
    }
}

static void a_request_is_not_sent_again_after_404_of_a_server_without_sessions(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, MAX, answer_without_sessions);
    assert_int_equal(ask.failure, ERR_UPSTREAM_TRANSPORT);
    assert_int_equal(web.step, 1);
    web_tear_down(&web);
}

// Opens the standalone stream each time, and sends nothing on it.
static void answer_idle(struct web *web, int fd, struct span head, struct span body)
{
    if (!web_has(head, "GET ")) {
        (void)shakes_hands(web, fd, head, body);
        return;
    }
    web_put(fd, WEB_STREAM_HEAD, 0);
    if (++web->step == 2)
        loop_stop(web->loop);
}

static void an_idle_standalone_stream_is_opened_again(void **state)
{
    (void)state;
    struct web web;
    web_set_up(&web, SERVER_HTTP, MAX, answer_idle);
    web.server.idle_stream_timeout_ms = 50;
    web_make_ready(&web);
    while (web.step < 2)
        loop_run(web.loop);
    assert_int_equal(upstream_state(web.upstream), UPSTREAM_READY);
    web_tear_down(&web);
}

static void a_server_that_accepts_no_connection_fails_after_connect_timeout(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    unsigned port;
    int full = listen_on_loopback(&port), filler[2];
    assert_int_equal(listen(full, 0), 0);  // one connection fits into the queue
    struct sockaddr_in name = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (size_t i = 0; i < COUNT(filler); i++) {
        filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void)connect(filler[i], (struct sockaddr *)&name, sizeof name);
    }
    web_set_up(&web, SERVER_HTTP, MAX, answer_idle);
    snprintf(web.url, sizeof web.url, "http://127.0.0.1:%u/mcp", port);
    web.server.connect_timeout_ms = 200;
    int64_t began_ms = loop_now(web.loop);
    web_call(&web, &ask);
    assert_int_equal(ask.failure, ERR_UNAVAILABLE);
    assert_in_range(loop_now(web.loop) - began_ms, 200, 10000);  // the other limits are 15 s
    web_tear_down(&web);
    for (size_t i = 0; i < COUNT(filler); i++)
        close(filler[i]);
    close(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_carry_session_and_revision_and_get_a_json_answer),
        cmocka_unit_test(an_answer_on_a_stream_may_arrive_in_pieces_after_a_notification),
        cmocka_unit_test(an_answer_above_the_maximum_fails_its_request),
        cmocka_unit_test(an_event_above_the_maximum_fails_its_request),
        cmocka_unit_test(a_large_event_is_parsed_separately_and_arrives_whole),
        cmocka_unit_test(a_lost_connection_fails_its_request_but_not_the_server),
        cmocka_unit_test(a_stream_that_ends_after_an_event_id_is_resumed),
        cmocka_unit_test(the_retry_after_of_a_response_reaches_the_reply),
        cmocka_unit_test(a_request_is_sent_again_when_the_server_forgot_the_session),
        cmocka_unit_test(a_request_is_not_sent_again_after_404_of_a_server_without_sessions),
        cmocka_unit_test(an_idle_standalone_stream_is_opened_again),
        cmocka_unit_test(a_server_that_accepts_no_connection_fails_after_connect_timeout),
        cmocka_unit_test(a_request_that_is_also_refused_in_the_new_session_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
