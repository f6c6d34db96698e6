// Tests the life of sessions as callers see it: the beginning, finding a session, streams and their resumption, and the end with
// open calls and streams.
#include "fixture.h"

#define PING "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"
#define INITIALIZE                                                                                            \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"," \
    "\"capabilities\":{}}}"

// ---- the beginning, and finding a session ---------------------------------------------------

static void a_session_starts_with_initialize_and_is_found_by_its_id(void **state)
{
    (void)state;
    const char *id = open_session("2025-11-25", "{}"), *other = open_session("2025-11-25", "{}");
    assert_string_not_equal(id, other);
    assert_int_equal(f.gate->sessions.count, 2);
    assert_int_equal(session_of(id)->state, SESSION_READY);
    assert_int_equal(send_message(id, PING)->status, 200);
}

static void a_message_without_a_session_or_with_an_unknown_one_is_refused(void **state)
{
    (void)state;
    assert_int_equal(send_message(NULL, PING)->code, ERR_NO_SESSION);
    struct exchange *unknown = send_message("0123456789012345678901234567890123456789012", PING);
    assert_int_equal(unknown->code, ERR_UNKNOWN_SESSION);
    assert_int_equal(unknown->status, 404);
    assert_int_equal(send_message("short", PING)->status, 404);
    assert_int_equal(f.gate->sessions.count, 0);
}

static void a_session_of_another_identity_is_reported_as_unknown(void **state)
{
    (void)state;
    struct identity *ann = identity_new(IDENTITY_BEARER, "default", "corp", "ann");
    struct session *hers = session_new(f.gate, tenant_find(f.gate, "default"), ann, false);
    identity_unref(ann);
    session_life_begin(hers, REVISION_2025_11_25, SPAN("{}"));
    struct exchange *ours = send_message(hers->id, PING), *unknown = send_message("short", PING);
    assert_int_equal(ours->status, 404);
    assert_string_equal(text_of(ours), text_of(unknown));
    assert_int_equal(arrive(ARRIVAL_LISTEN, hers->id, NULL)->status, 404);
    assert_int_equal(arrive(ARRIVAL_END, hers->id, NULL)->status, 404);
    assert_int_equal(hers->state, SESSION_LIVE);
    assert_false(stream_attached(hers->standalone));
}

// A worker reads a large message, and a reload may come meanwhile.
static void a_session_does_not_begin_in_a_tenant_that_was_removed(void **state)
{
    (void)state;
    struct tenant *tenant = tenant_find(f.gate, "default");
    char *padding = mem_alloc(MESSAGE_LARGE + 1);
    memset(padding, 'x', MESSAGE_LARGE);
    struct buf body = {0};
    buf_printf(&body,
               "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\","
               "\"capabilities\":{},\"clientInfo\":{\"name\":\"%s\"}}}",
               padding);
    struct exchange *before = send_message(NULL, buf_text(&body));
    run_until(is_over(before));
    assert_int_equal(before->status, 200);
    struct exchange *hello = send_message(NULL, buf_text(&body));
    assert_false(is_over(hello));
    list_remove(&tenant->node);
    run_until(is_over(hello));
    assert_int_equal(hello->status, 401);
    assert_string_equal(hello->session, "");
    list_append(&f.gate->tenants, &tenant->node);
    buf_release(&body);
    free(padding);
}

static void a_session_is_initialized_once(void **state)
{
    (void)state;
    const char *id = open_session("2025-11-25", "{}");
    struct exchange *again = send_message(id, INITIALIZE);
    assert_int_equal(again->code, ERR_ALREADY_INITIALIZED);
    assert_int_equal(send_message(id, PING)->status, 200);
}

static void a_session_whose_initialize_failed_is_removed(void **state)
{
    (void)state;
    struct exchange *call =
        send_message(NULL, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}");
    assert_int_equal(call->code, ERR_INVALID_PARAMS);
    assert_string_equal(call->session, "");
    assert_int_equal(f.gate->sessions.count, 0);
}

static void a_session_beyond_the_limit_is_refused_until_another_ends(void **state)
{
    (void)state;
    tenant_find(f.gate, "default")->session_limit = 2;
    const char *first = open_session("2025-11-25", "{}");
    (void)open_session("2025-11-25", "{}");
    struct exchange *third = send_message(NULL, INITIALIZE);
    assert_int_equal(third->code, ERR_TOO_MANY);
    assert_int_equal(third->status, 503);
    assert_int_equal(arrive(ARRIVAL_END, first, NULL)->status, 200);
    assert_int_equal(send_message(NULL, INITIALIZE)->status, 200);
}

// ---- the end --------------------------------------------------------------------------------

static void a_session_that_its_caller_ended_is_unknown(void **state)
{
    (void)state;
    const char *id = open_session("2025-11-25", "{}");
    struct exchange *stream = listen_to(id);
    assert_int_equal(arrive(ARRIVAL_END, id, NULL)->status, 200);
    assert_true(is_over(stream));
    assert_int_equal(send_message(id, PING)->status, 404);
    assert_int_equal(f.gate->sessions.count, 0);
    assert_int_equal(f.gate->session_counts.count, 0);
    assert_int_equal(tenant_find(f.gate, "default")->session_count, 0);
}

static void an_idle_session_is_ended_by_a_sweep(void **state)
{
    (void)state;
    const char *idle = open_session("2025-11-25", "{}"), *listening = open_session("2025-11-25", "{}");
    (void)listen_to(listening);
    session_life_sweep(session_of(idle));
    assert_non_null(session_of(idle));
    f.config->timeouts.session_idle_ms = 0;
    int64_t now = loop_now(f.loop);
    run_until(loop_now(f.loop) > now);
    session_life_sweep(session_of(idle));
    session_life_sweep(session_of(listening));
    assert_null(session_of(idle));
    assert_non_null(session_of(listening));
}

static void a_session_with_a_call_in_flight_is_not_idle(void **state)
{
    (void)state;
    const char *id = open_session("2025-11-25", "{}");
    run_until(server_is_up());
    struct exchange *call = call_tool(id, "1");
    f.config->timeouts.session_idle_ms = 0;
    int64_t now = loop_now(f.loop);
    run_until(loop_now(f.loop) > now);
    session_life_sweep(session_of(id));
    assert_non_null(session_of(id));
    server_answers(server_received("tools/call"), "{}");
    run_until(is_over(call));
    assert_int_equal(call->status, 200);
}

static void a_session_that_ends_aborts_its_calls_with_an_error(void **state)
{
    (void)state;
    const char *id = open_session("2025-11-25", "{}");
    run_until(server_is_up());
    struct exchange *first = call_tool(id, "1"), *second = call_tool(id, "2");
    (void)arrive(ARRIVAL_END, id, NULL);
    assert_int_equal(first->answers, 1);
    assert_int_equal(second->answers, 1);
    assert_int_equal(first->code, ERR_UNKNOWN_SESSION);
    assert_contains(text_of(first), "\"error\"");
    assert_contains(text_of(first), "The session has ended");
    assert_true(list_empty(&f.gate->calls));
    run_until(server_received_count("notifications/cancelled") == 2);
}

static void a_session_ends_when_its_identity_is_no_longer_valid(void **state)
{
    (void)state;
    struct identity *ann = identity_new(IDENTITY_BEARER, "default", "corp", "ann");
    const char *ours = open_session("2025-11-25", "{}");
    struct session *hers = session_new(f.gate, tenant_find(f.gate, "default"), ann, false);
    char id[SESSION_ID_LEN + 1];
    memcpy(id, hers->id, sizeof id);
    identity_unref(ann);
    gate_recheck_identities(f.gate);  // no provider of this gate has the name of her provider
    assert_null(session_of(id));
    assert_non_null(session_of(ours));
}

static void begin_twice(void)
{
    struct session *session = session_of(open_session("2025-11-25", "{}"));
    session_life_begin(session, REVISION_2025_11_25, SPAN("{}"));
}

static void a_session_that_is_begun_twice_aborts_the_process(void **state)
{
    (void)state;
    assert_aborts(begin_twice);
}

// ---- streams --------------------------------------------------------------------------------

static struct exchange *resume(const char *session, const char *event)
{
    struct exchange *exchange = exchange_new(ARRIVAL_LISTEN, session, NULL);
    exchange->arrival.last_event_id = span_of(event);
    gate_arrive(f.gate, &exchange->arrival);
    return exchange;
}

static void tell(const char *session, const char *text) { session_tell(session_of(session), blob_copy(span_of(text))); }

static void a_session_has_one_standalone_stream_at_a_time(void **state)
{
    (void)state;
    const char *id = open_session("2025-11-25", "{}");
    struct exchange *first = listen_to(id), *second = arrive(ARRIVAL_LISTEN, id, NULL);
    assert_int_equal(second->code, ERR_STREAM_CONFLICT);
    tell(id, "a");
    assert_string_equal(text_of(first), "a\n");
    hang_up(first);
    tell(id, "b");
    assert_string_equal(text_of(listen_to(id)), "b\n");
}

static void a_stream_resumes_after_the_event_that_its_caller_names(void **state)
{
    (void)state;
    const char *id = open_session("2025-06-18", "{}");
    struct exchange *first = listen_to(id);
    tell(id, "a");
    tell(id, "b");
    assert_string_equal(text_of(first), "a\nb\n");
    struct exchange *again = resume(id, "0-1");  // although the first connection still looks open
    assert_int_equal(first->cuts, 1);
    assert_string_equal(text_of(again), "b\n");
    tell(id, "c");
    assert_string_equal(text_of(again), "b\nc\n");
    assert_int_equal(resume(id, "0-9")->code, ERR_UNKNOWN_EVENT);
    assert_int_equal(resume(id, "7-1")->code, ERR_UNKNOWN_EVENT);
    assert_int_equal(resume(id, "x")->code, ERR_UNKNOWN_EVENT);
}

static void the_answer_of_a_call_waits_on_its_stream_for_a_caller_that_reconnects(void **state)
{
    (void)state;
    const char *id = open_session("2025-06-18", "{}");
    run_until(server_is_up());
    f.config->timeouts.stream_after_ms = 1;
    struct exchange *call = call_tool(id, "1");
    run_until(call->streams);
    hang_up(call);
    server_answers(server_received("tools/call"), "{\"n\":1}");
    run_until(list_empty(&f.gate->calls));
    assert_string_equal(text_of(call), "");
    struct exchange *back = resume(id, "1-0");
    assert_string_equal(text_of(back), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1}}\n");
    assert_true(is_over(back));
}

static void a_pipe_ends_with_its_last_call_once_it_drains(void **state)
{
    (void)state;
    struct exchange *pipe = arrive(ARRIVAL_PIPE, NULL, NULL);
    assert_int_equal(pipe->streams, 1);
    struct exchange *hello = exchange_new(ARRIVAL_MESSAGE, pipe->session, INITIALIZE);
    hello->arrival.pipe = true;
    gate_arrive(f.gate, &hello->arrival);
    assert_int_equal(hello->status, 202);  // the answer is sent on the pipe
    assert_contains(text_of(pipe), "\"protocolVersion\":\"2025-11-25\"");
    gate_pipe_drain(f.gate, span_of(pipe->session));
    assert_null(session_of(pipe->session));
    assert_true(is_over(pipe));
}

#define ALONE(test) cmocka_unit_test_setup_teardown(test, open_alone, fixture_close)
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, open_with_server, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(a_session_starts_with_initialize_and_is_found_by_its_id),
        ALONE(a_message_without_a_session_or_with_an_unknown_one_is_refused),
        ALONE(a_session_of_another_identity_is_reported_as_unknown),
        ALONE(a_session_does_not_begin_in_a_tenant_that_was_removed),
        ALONE(a_session_is_initialized_once),
        ALONE(a_session_whose_initialize_failed_is_removed),
        ALONE(a_session_beyond_the_limit_is_refused_until_another_ends),
        ALONE(a_session_that_its_caller_ended_is_unknown),
        ALONE(an_idle_session_is_ended_by_a_sweep),
        WITH_SERVER(a_session_with_a_call_in_flight_is_not_idle),
        WITH_SERVER(a_session_that_ends_aborts_its_calls_with_an_error),
        ALONE(a_session_ends_when_its_identity_is_no_longer_valid),
        ALONE(a_session_that_is_begun_twice_aborts_the_process),
        ALONE(a_session_has_one_standalone_stream_at_a_time),
        ALONE(a_stream_resumes_after_the_event_that_its_caller_names),
        WITH_SERVER(the_answer_of_a_call_waits_on_its_stream_for_a_caller_that_reconnects),
        ALONE(a_pipe_ends_with_its_last_call_once_it_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
