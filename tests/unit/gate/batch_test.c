// Tests batches (revisions up to 2025-03-26): which are accepted, and how the answers of their parts are sent.
#include "fixture.h"

#define PING(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"ping\"}"
#define TOOL(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"s__go\"}}"
#define NOTICE "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}"
#define EMPTY(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{}}"

static int open_small(void **state)
{
    (void)state;
    fixture_open("{\"limits\":{\"batch\":3}}", false);
    return 0;
}

// The batch was answered as a whole, before any part started.
static void assert_refused(const struct exchange *call)
{
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->status, 400);
    assert_int_equal(call->code, ERR_INVALID_REQUEST);
    assert_true(list_empty(&f.gate->calls));
}

static void the_answers_of_a_batch_arrive_in_one_array(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    struct exchange *call = send_message(session, "[" PING("1") "," NOTICE "," PING("\"b\"") "]");
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->status, 200);
    assert_string_equal(text_of(call), "[" EMPTY("1") "," EMPTY("\"b\"") "]");
    assert_true(list_empty(&f.gate->calls));
}

static void a_batch_waits_for_its_slowest_part(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    run_until(server_is_up());
    struct exchange *call = send_message(session, "[" TOOL("1") "," PING("2") "," TOOL("3") "]");
    run_until(server_received_count("tools/call") == 2);
    assert_int_equal(call->answers, 0);
    server_answers(json_array_get(f.server.received, 1), "{\"n\":3}");
    server_answers(json_array_get(f.server.received, 0), "{\"n\":1}");
    run_until(is_over(call));
    assert_int_equal(call->answers + call->streams, 1);
    json_t *answers = json_loads(text_of(call), 0, NULL);
    assert_int_equal(json_array_size(answers), 3);
    assert_json(json_array_get(answers, 0), EMPTY("2"));
    assert_json(json_array_get(answers, 1), "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"n\":3}}");
    assert_json(json_array_get(answers, 2), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1}}");
    json_decref(answers);
}

static void each_part_of_a_batch_is_recorded_once(void **state)
{
    (void)state;
    enum audit_status status;
    const char *session = open_session("2025-03-26", "{}");
    run_until(server_is_up());
    set_policy(policy_allowing("tool", "other"));
    struct exchange *call = send_message(session, "[" TOOL("1") "," PING("2") "]");
    assert_contains(text_of(call), "\"rule\":\"default\"");
    assert_contains(text_of(call), EMPTY("2"));
    assert_int_equal(audit_rows("tools/call", &status), 1);
    assert_int_equal(status, AUDIT_DENIED);
    assert_int_equal(log_lines("\"method\":\"tools/call\"", ""), 1);
    assert_int_equal(log_lines("\"method\":\"ping\"", ""), 1);
}

static void a_batch_of_notifications_is_accepted_without_an_answer(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    struct exchange *call = send_message(session, "[" NOTICE "," NOTICE "]");
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->status, 202);
    assert_string_equal(text_of(call), "");
}

static void a_part_of_a_batch_that_is_not_a_message_gets_an_error_in_the_array(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    struct exchange *call = send_message(session, "[5," PING("2") "]");
    assert_int_equal(call->status, 200);
    json_t *answers = json_loads(text_of(call), 0, NULL);
    assert_int_equal(json_array_size(answers), 2);
    assert_json(json_object_get(json_object_get(json_array_get(answers, 0), "error"), "code"), "-32600");
    assert_json(json_object_get(json_array_get(answers, 0), "id"), "null");
    assert_json(json_array_get(answers, 1), EMPTY("2"));
    json_decref(answers);
}

static void a_batch_with_initialize_is_refused(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    assert_refused(send_message(session, "[" PING("1") ",{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"initi\\u0061lize\","
                                                       "\"params\":{\"protocolVersion\":\"2025-03-26\"}}]"));
    assert_int_equal(session_of(session)->state, SESSION_READY);
}

static void a_batch_that_is_too_long_or_empty_is_refused(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    assert_refused(send_message(session, "[]"));
    assert_refused(send_message(session, "[" PING("1") "," PING("2") "," PING("3") "," PING("4") "]"));
    assert_int_equal(send_message(session, "[" PING("1") "," PING("2") "," PING("3") "]")->status, 200);
}

static void a_batch_in_a_session_of_2025_06_18_or_later_is_refused(void **state)
{
    (void)state;
    assert_refused(send_message(open_session("2025-06-18", "{}"), "[" PING("1") "]"));
    assert_refused(send_message(open_session("2025-11-25", "{}"), "[" PING("1") "]"));
    assert_int_equal(send_message(open_session("2024-11-05", "{}"), "[" PING("1") "]")->status, 200);
}

static void a_batch_whose_session_ends_gets_an_answer_for_each_part(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    run_until(server_is_up());
    struct exchange *call = send_message(session, "[" TOOL("1") "," TOOL("2") "]");
    run_until(server_received_count("tools/call") == 2);
    session_life_end(session_of(session));
    assert_int_equal(call->answers, 1);
    json_t *answers = json_loads(text_of(call), 0, NULL);
    assert_int_equal(json_array_size(answers), 2);
    assert_non_null(json_object_get(json_array_get(answers, 0), "error"));
    assert_non_null(json_object_get(json_array_get(answers, 1), "error"));
    json_decref(answers);
    run_until(server_received_count("notifications/cancelled") == 2);
    assert_true(list_empty(&f.gate->calls));
}

// The other parts are answered.
static void a_cancelled_part_has_no_answer_in_the_array(void **state)
{
    (void)state;
    const char *session = open_session("2025-03-26", "{}");
    run_until(server_is_up());
    struct exchange *call = send_message(session, "[" TOOL("1") "," TOOL("2") "]");
    run_until(server_received_count("tools/call") == 2);
    (void)send_message(session,
                       "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}");
    assert_int_equal(call->answers, 0);
    server_answers(json_array_get(f.server.received, 1), "{}");
    run_until(is_over(call));
    assert_string_equal(text_of(call), "[" EMPTY("2") "]");
}

#define SMALL(test) cmocka_unit_test_setup_teardown(test, open_small, fixture_close)
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, open_with_server, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SMALL(the_answers_of_a_batch_arrive_in_one_array),
        WITH_SERVER(a_batch_waits_for_its_slowest_part),
        WITH_SERVER(each_part_of_a_batch_is_recorded_once),
        SMALL(a_batch_of_notifications_is_accepted_without_an_answer),
        SMALL(a_part_of_a_batch_that_is_not_a_message_gets_an_error_in_the_array),
        SMALL(a_batch_with_initialize_is_refused),
        SMALL(a_batch_that_is_too_long_or_empty_is_refused),
        SMALL(a_batch_in_a_session_of_2025_06_18_or_later_is_refused),
        WITH_SERVER(a_batch_whose_session_ends_gets_an_answer_for_each_part),
        WITH_SERVER(a_cancelled_part_has_no_answer_in_the_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
