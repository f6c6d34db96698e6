// Tests questions of servers to callers: which session is asked, how the answer reaches the server, and the error that a server
// gets when no caller can answer.
#include "fixture.h"

#define EVERYTHING "{\"sampling\":{},\"elicitation\":{},\"roots\":{\"listChanged\":true}}"
#define ELICIT(id) \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"elicitation/create\",\"params\":{\"message\":\"why\"}}"
#define SAMPLE(id) \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"sampling/createMessage\",\"params\":{\"messages\":[]}}"
#define ROOTS(id) "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"roots/list\"}"

// Two initialized sessions; the server is up, and a call of the first session is in flight.
static char *first, *second;
static struct exchange *call;

static int open_two(void **state)
{
    (void)state;
    fixture_open("{}", true);
    first = open_session("2025-11-25", EVERYTHING);
    second = open_session("2025-11-25", EVERYTHING);
    run_until(server_is_up());
    call = call_tool(first, "1");
    return 0;
}

// One initialized session without a call.
static int open_one(void **state)
{
    (void)state;
    fixture_open("{}", true);
    first = open_session("2025-11-25", EVERYTHING);
    run_until(server_is_up());
    return 0;
}

// The server sends a question, and this is the first answer that it gets.
static void assert_server_gets(const char *question, const char *answer)
{
    size_t before = server_received_count("");
    server_says(question);
    run_until(server_received_count("") > before);
    assert_json(server_received(""), answer);
}

static void answer(const char *session, const char *text)
{
    assert_int_equal(send_message(session, text)->status, 202);
}

static void a_question_goes_to_the_only_caller_with_a_call_in_flight(void **state)
{
    (void)state;
    struct exchange *elsewhere = listen_to(second), *standalone = listen_to(first);
    server_says(ELICIT("\"q\""));
    run_until(call->streams);
    run_until(call->text.len);
    json_t *question = json_loads(text_of(call), 0, NULL);
    assert_json(json_object_get(question, "method"), "\"elicitation/create\"");
    assert_json(json_object_get(question, "params"), "{\"message\":\"[s] why\"}");  // users see which server asks
    assert_json(json_object_get(question, "id"), "1");
    json_decref(question);
    assert_string_equal(text_of(elsewhere), "");
    assert_string_equal(text_of(standalone), "");
}

static void an_answer_reaches_the_server_under_the_id_of_its_question(void **state)
{
    (void)state;
    server_says(SAMPLE("\"q-7\""));
    run_until(call->text.len);
    answer(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"role\":\"assistant\",\"n\":1.0}}");
    run_until(server_received(""));
    assert_json(server_received(""),
                "{\"jsonrpc\":\"2.0\",\"id\":\"q-7\",\"result\":{\"role\":\"assistant\",\"n\":1.0}}");
    assert_int_equal(session_of(first)->asks.count, 0);
    assert_int_equal(server_link()->asks.count, 0);
    assert_int_equal(call->answers, 0);  // the call is still in flight
    server_answers(server_received("tools/call"), "{}");
    run_until(is_over(call));
}

static void an_error_of_the_caller_reaches_the_server_unchanged(void **state)
{
    (void)state;
    server_says(SAMPLE("5"));
    run_until(call->text.len);
    answer(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1,\"message\":\"no\"}}");
    run_until(server_received(""));
    assert_json(server_received(""), "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-1,\"message\":\"no\"}}");
}

// So is a second answer, and an answer from another session.
static void an_answer_to_an_unknown_question_is_ignored(void **state)
{
    (void)state;
    server_says(SAMPLE("5"));
    run_until(call->text.len);
    answer(first, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"n\":2}}");
    answer(first, "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":{\"n\":3}}");
    answer(second, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":4}}");
    answer(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1}}");
    answer(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":5}}");
    run_until(server_received(""));
    assert_json(server_received(""), "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"n\":1}}");
    assert_server_gets("{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"ping\"}",
                       "{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"result\":{}}");
    assert_int_equal(server_received_count(""), 2);
}

static void a_question_is_refused_when_two_callers_have_calls_in_flight(void **state)
{
    (void)state;
    struct exchange *other = call_tool(second, "1");
    assert_server_gets(SAMPLE("1"), "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":"
                                    "\"cannot determine which caller to ask\"}}");
    assert_server_gets(ELICIT("2"), "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"action\":\"cancel\"}}");
    assert_server_gets(ROOTS("3"), "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"roots\":[]}}");
    assert_int_equal(call->streams + other->streams, 0);
}

static void a_question_without_a_call_in_flight_is_refused_even_with_one_session(void **state)
{
    (void)state;
    struct exchange *standalone = listen_to(first);
    assert_server_gets(ELICIT("2"), "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"action\":\"cancel\"}}");
    assert_string_equal(text_of(standalone), "");
}

static void the_only_session_is_asked_for_its_roots_at_any_time(void **state)
{
    (void)state;
    struct exchange *standalone = listen_to(first);
    server_says(ROOTS("\"r\""));
    run_until(standalone->text.len);
    assert_string_equal(text_of(standalone), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n");
    answer(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"roots\":[{\"uri\":\"file:///home\"}]}}");
    run_until(server_received(""));
    assert_json(server_received(""),
                "{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"result\":{\"roots\":[{\"uri\":\"file:///home\"}]}}");
    answer(first, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}");
    run_until(server_received("notifications/roots/list_changed"));
}

static void a_caller_without_the_capability_is_not_asked(void **state)
{
    (void)state;
    (void)arrive(ARRIVAL_END, first, NULL);
    (void)arrive(ARRIVAL_END, second, NULL);
    const char *plain = open_session("2025-11-25", "{\"elicitation\":{\"form\":{}}}");
    call = call_tool(plain, "1");
    assert_server_gets(SAMPLE("1"), "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":"
                                    "\"the caller does not support sampling\"}}");
    assert_server_gets(ROOTS("2"), "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"roots\":[]}}");
    assert_server_gets("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"elicitation/create\",\"params\":{\"mode\":\"url\","
                       "\"message\":\"m\",\"url\":\"https://h/\",\"elicitationId\":\"e\"}}",
                       "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"action\":\"cancel\"}}");
    assert_server_gets("{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"x/y\"}",
                       "{\"jsonrpc\":\"2.0\",\"id\":4,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}");
    assert_int_equal(call->streams, 0);
    server_says(ELICIT("5"));
    run_until(call->streams);
}

static void a_second_question_with_the_id_of_an_open_one_is_refused(void **state)
{
    (void)state;
    server_says(SAMPLE("5"));
    run_until(call->text.len);
    assert_server_gets(SAMPLE("5"), "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32603,\"message\":"
                                    "\"a question with this id is already open\"}}");
    assert_int_equal(session_of(first)->asks.count, 1);
}

static void questions_to_a_session_that_ends_are_answered_with_an_error(void **state)
{
    (void)state;
    server_says(SAMPLE("5"));
    run_until(call->text.len);
    (void)arrive(ARRIVAL_END, first, NULL);
    run_until(server_received(""));
    assert_json(
        server_received(""),
        "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32603,\"message\":\"the caller has disconnected\"}}");
    assert_int_equal(server_link()->asks.count, 0);
}

static void a_question_that_its_server_cancels_is_cancelled_at_the_caller(void **state)
{
    (void)state;
    server_says(SAMPLE("5"));
    run_until(call->text.len);
    buf_clear(&call->text);
    server_says("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":5,"
                "\"reason\":\"late\"}}");
    run_until(call->text.len);
    assert_string_equal(text_of(call), "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{"
                                       "\"requestId\":1,\"reason\":\"late\"}}\n");
    assert_int_equal(session_of(first)->asks.count, 0);
}

static void a_question_is_cancelled_when_its_server_ends(void **state)
{
    (void)state;
    server_says(SAMPLE("5"));
    run_until(call->text.len);
    server_dies();
    run_until(is_over(call));
    assert_contains(text_of(call), "\"notifications/cancelled\",\"params\":{\"requestId\":1,"
                                   "\"reason\":\"the server has disconnected\"}");
    assert_int_equal(session_of(first)->asks.count, 0);
}

static void a_question_that_is_not_answered_in_time_is_refused(void **state)
{
    (void)state;
    f.config->timeouts.ask_ms = 20;
    assert_server_gets(ELICIT("5"), "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"action\":\"cancel\"}}");
    assert_contains(text_of(call), "\"reason\":\"timeout\"");
    assert_int_equal(session_of(first)->asks.count, 0);
}

static void an_answer_that_is_not_valid_refuses_the_question(void **state)
{
    (void)state;
    server_says(SAMPLE("5"));
    run_until(call->text.len);
    struct exchange *bad = send_message(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{}}");
    assert_int_equal(bad->code, ERR_INVALID_REQUEST);
    assert_contains(text_of(bad),
                    "\"id\":null");  // with the id of the question, it would look like the answer to a request
    run_until(server_received(""));
    assert_json(server_received(""), "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32603,\"message\":"
                                     "\"the caller's answer is not valid\"}}");
}

#define TWO(test) cmocka_unit_test_setup_teardown(test, open_two, fixture_close)
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_one, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TWO(a_question_goes_to_the_only_caller_with_a_call_in_flight),
        TWO(an_answer_reaches_the_server_under_the_id_of_its_question),
        TWO(an_error_of_the_caller_reaches_the_server_unchanged),
        TWO(an_answer_to_an_unknown_question_is_ignored),
        TWO(a_question_is_refused_when_two_callers_have_calls_in_flight),
        ONE(a_question_without_a_call_in_flight_is_refused_even_with_one_session),
        ONE(the_only_session_is_asked_for_its_roots_at_any_time),
        TWO(a_caller_without_the_capability_is_not_asked),
        TWO(a_second_question_with_the_id_of_an_open_one_is_refused),
        TWO(questions_to_a_session_that_ends_are_answered_with_an_error),
        TWO(a_question_that_its_server_cancels_is_cancelled_at_the_caller),
        TWO(a_question_is_cancelled_when_its_server_ends),
        TWO(a_question_that_is_not_answered_in_time_is_refused),
        TWO(an_answer_that_is_not_valid_refuses_the_question),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
