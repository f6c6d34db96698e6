// Tests the HTTP+SSE transport against a server on the same loop: the endpoint, answers on the stream, lost streams, Retry-After.
#include "web_peer.h"

#define MAX 4096

// Opens the stream and answers the handshake on it; accepts all other requests and returns false.
static bool shakes_hands(struct web *web, int fd, struct span head, struct span body)
{
    if (web_has(head, "GET ")) {
        web->stream = fd;
        web_put(fd, WEB_STREAM_HEAD "event: endpoint\ndata: /post?session=1\n\n", 0);
        return true;
    }
    assert_true(web_has(head, "POST /post?session=1 "));
    if (web->step != 503)
        web_put(fd, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 0);
    if (!web_has(body, "\"initialize\""))
        return web_has(body, "notifications/");
    web_put(web->stream, "event: message\ndata: " WEB_HELLO "\n\n", web_id(body));
    return true;
}

static void call_once(struct web *web, struct web_ask *ask,
                      void (*on_request)(struct web *, int, struct span, struct span))
{
    web_set_up(web, SERVER_SSE, MAX, on_request);
    web_make_ready(web);
    web_call(web, ask);
}

static void answer(struct web *web, int fd, struct span head, struct span body)
{
    if (!shakes_hands(web, fd, head, body))
        web_put(web->stream, "data: " WEB_RESULT "\n\n", web_id(body));
}

static void an_answer_arrives_on_the_stream(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, answer);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    assert_string_equal(upstream_server(web.upstream)->name, "web");
    web_tear_down(&web);
}

static uint64_t asked;
static struct loop_timer rest;

static void put_rest(struct loop_timer *timer)
{
    const struct web *web = timer->arg;
    web_put(web->stream, "data: \"id\":$ID,\ndata: \"result\":{\"n\":1.0}}\n\n", asked);
}

static void answer_split(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    asked = web_id(body);
    web_put(web->stream, "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\ndata: {\"jsonrpc\":\"2.0\",\n", 0);
    rest = (struct loop_timer){.on_due = put_rest, .arg = web};
    loop_timer_set(web->loop, &rest, 20);
}

static void an_event_may_arrive_in_pieces_and_lines(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, answer_split);
    assert_int_equal(ask.failure, ERR_NONE);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    assert_int_equal(web.notifications, 1);
    assert_false(web.of_request);
    web_tear_down(&web);
}

static void name_other_origin(struct web *web, int fd, struct span head, struct span body)
{
    (void)web;
    (void)body;
    assert_true(web_has(head, "GET "));
    web_put(fd, WEB_STREAM_HEAD "event: endpoint\ndata: http://192.0.2.1/post\n\n", 0);
}

static void an_endpoint_of_another_origin_is_refused(void **state)
{
    (void)state;
    struct web web;
    web_set_up(&web, SERVER_SSE, MAX, name_other_origin);
    upstream_start(web.upstream);
    web_await_down(&web);
    assert_contains(upstream_problem(web.upstream), "an endpoint of another origin: http://192.0.2.1/post");
    assert_int_equal(web.requests, 1);
    web_tear_down(&web);
}

static void answer_oversized(struct web *web, int fd, struct span head, struct span body)
{
    if (shakes_hands(web, fd, head, body))
        return;
    if (web->step++ == 0) {
        web_put(web->stream, "data: {\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"x\":\"", web_id(body));
        for (int i = 0; i < MAX / 8 * 2; i++)
            web_put(web->stream, "12345678", 0);
        web_put(web->stream, "\"}}\n\n", 0);
    } else {
        web_put(web->stream, "data: " WEB_RESULT "\n\n", web_id(body));
    }
}

static void a_stream_continues_after_an_event_above_the_maximum(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, answer_oversized);
    assert_int_equal(ask.failure, ERR_UPSTREAM_INVALID);
    assert_contains(ask.detail, "a message is larger than 4096 bytes");
    web_call(&web, &ask);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    web_tear_down(&web);
}

static void cut(struct web *web, int fd, struct span head, struct span body)
{
    if (!shakes_hands(web, fd, head, body))
        web_hang_up(web, web->stream);
}

static void the_end_of_the_stream_ends_the_connection_to_the_server(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, cut);
    assert_int_equal(ask.failure, ERR_UPSTREAM_DIED);
    assert_int_not_equal(upstream_state(web.upstream), UPSTREAM_READY);
    web.on_request = answer;
    web_call(&web, &ask);
    assert_string_equal(ask.result, "{\"n\":1.0}");
    web_tear_down(&web);
}

static void answer_busy(struct web *web, int fd, struct span head, struct span body)
{
    web->step = web_has(body, "\"echo\"") ? 503 : 0;
    if (!shakes_hands(web, fd, head, body))
        web_answer(fd, "503 Busy", "Retry-After: 7\r\n", "busy", 0);
}

static void the_retry_after_of_a_post_reaches_its_reply(void **state)
{
    (void)state;
    struct web web;
    struct web_ask ask;
    call_once(&web, &ask, answer_busy);
    assert_int_equal(ask.failure, ERR_UPSTREAM_TRANSPORT);
    assert_int_equal(ask.retry_after_ms, 7000);
    assert_int_equal(upstream_state(web.upstream), UPSTREAM_READY);
    web_tear_down(&web);
}

static void refuse_stream(struct web *web, int fd, struct span head, struct span body)
{
    (void)web;
    (void)head;
    (void)body;
    web_answer(fd, "503 Busy", "Retry-After: 20\r\n", "busy", 0);
}

static void the_retry_after_of_the_stream_delays_the_next_attempt(void **state)
{
    (void)state;
    struct web web;
    web_set_up(&web, SERVER_SSE, MAX, refuse_stream);
    upstream_start(web.upstream);
    web_await_down(&web);
    assert_contains(upstream_problem(web.upstream), "HTTP 503");
    assert_true(upstream_pause_left(web.upstream) > 15000);
    web_tear_down(&web);
}

// Answers pings, but not those after the third.
static void answer_pings(struct web *web, int fd, struct span head, struct span body)
{
    if (!shakes_hands(web, fd, head, body) && ++web->step <= 3)
        web_put(web->stream, "data: " WEB_RESULT "\n\n", web_id(body));
}

static void a_server_whose_stream_is_idle_gets_pings_and_is_lost_if_it_does_not_answer(void **state)
{
    (void)state;
    struct web web;
    web_set_up(&web, SERVER_SSE, MAX, answer_pings);
    web.server.idle_stream_timeout_ms = 50;
    web.server.timeout_ms = 1000;
    web_make_ready(&web);
    web.stop_down = true;
    while (upstream_state(web.upstream) == UPSTREAM_READY)
        loop_run(web.loop);
    assert_true(web.step > 3);
    assert_contains(upstream_problem(web.upstream), "a ping was not answered");
    web_tear_down(&web);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_arrives_on_the_stream),
        cmocka_unit_test(an_event_may_arrive_in_pieces_and_lines),
        cmocka_unit_test(an_endpoint_of_another_origin_is_refused),
        cmocka_unit_test(a_stream_continues_after_an_event_above_the_maximum),
        cmocka_unit_test(the_end_of_the_stream_ends_the_connection_to_the_server),
        cmocka_unit_test(the_retry_after_of_a_post_reaches_its_reply),
        cmocka_unit_test(a_server_whose_stream_is_idle_gets_pings_and_is_lost_if_it_does_not_answer),
        cmocka_unit_test(the_retry_after_of_the_stream_delays_the_next_attempt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
