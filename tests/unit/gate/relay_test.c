// Tests messages that servers send on their own: each reaches the sessions that it concerns, and no others.
//
// To prove that a message does not reach a session, the tests wait for a later message, because messages keep their order.
#include "fixture.h"
#include "gate/control.h"

#define LOG(level, data)                                                                                              \
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"" level "\",\"logger\":\"l\"," \
    "\"data\":\"" data "\"}}"
#define TOLD(level, data)                                                              \
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":" \
    "\"" level "\",\"logger\":\"s/l\",\"data\":\"" data "\"}}\n"
#define CHANGED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"
#define UPDATED(uri) \
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{\"uri\":\"" uri "\"}}"
#define STATUS(task)                                                                                                 \
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks/status\",\"params\":{\"taskId\":\"" task "\",\"status\":" \
    "\"working\"}}"

static char *first, *second;
static struct exchange *to_first, *to_second;  // the standalone streams of the sessions

static int open_two(void **state)
{
    (void)state;
    fixture_open("{}", true);
    first = open_session("2025-11-25", "{}");
    second = open_session("2025-11-25", "{}");
    to_first = listen_to(first);
    to_second = listen_to(second);
    run_until(server_is_up());
    return 0;
}

static void ask_for(const char *session, const char *method, const char *params)
{
    char body[256];
    snprintf(body, sizeof body, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}", method, params);
    struct exchange *exchange = send_message(session, body);
    run_until(is_over(exchange));
    assert_int_equal(exchange->status, 200);
    assert_int_equal(exchange->code, ERR_NONE);
}

// The server sends a last message; waits until both sessions have it.
static void run_to_the_end(void)
{
    server_says(LOG("emergency", "end"));
    run_until(strstr(text_of(to_first), "\"end\"") && strstr(text_of(to_second), "\"end\""));
}

#define END TOLD("emergency", "end")

static void a_log_message_reaches_the_sessions_that_want_its_level(void **state)
{
    (void)state;
    ask_for(first, "logging/setLevel", "{\"level\":\"error\"}");
    ask_for(second, "logging/setLevel", "{\"level\":\"debug\"}");
    server_says(LOG("debug", "d"));
    server_says(LOG("warning", "w"));
    server_says(LOG("error", "e"));
    run_to_the_end();
    assert_string_equal(text_of(to_first), TOLD("error", "e") END);
    assert_string_equal(text_of(to_second), TOLD("debug", "d") TOLD("warning", "w") TOLD("error", "e") END);
}

static void a_server_gets_the_lowest_log_level_that_a_session_wants(void **state)
{
    (void)state;
    ask_for(first, "logging/setLevel", "{\"level\":\"error\"}");
    run_until(server_received_count("logging/setLevel") == 1);  // a session that set no level counts as info
    assert_json(json_object_get(server_received("logging/setLevel"), "params"), "{\"level\":\"info\"}");
    ask_for(second, "logging/setLevel", "{\"level\":\"debug\"}");
    run_until(server_received_count("logging/setLevel") == 2);
    assert_json(json_object_get(server_received("logging/setLevel"), "params"), "{\"level\":\"debug\"}");
    (void)arrive(ARRIVAL_END, second, NULL);
    level_sweep(f.gate);
    run_until(server_received_count("logging/setLevel") == 3);
    assert_json(json_object_get(server_received("logging/setLevel"), "params"), "{\"level\":\"error\"}");
}

static void a_log_message_without_a_valid_level_is_dropped(void **state)
{
    (void)state;
    server_says("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"x\"}}");
    server_says(LOG("loud", "x"));
    run_to_the_end();
    assert_string_equal(text_of(to_first), END);
}

static void a_log_message_goes_to_the_stream_of_the_only_call_in_flight(void **state)
{
    (void)state;
    struct exchange *call = call_tool(first, "1");
    server_says(LOG("info", "during"));
    run_until(call->streams && call->text.len);
    assert_string_equal(text_of(call), TOLD("info", "during"));
    assert_string_equal(text_of(to_first), "");
}

static void messages_of_a_server_whose_items_are_all_denied_do_not_reach_a_session(void **state)
{
    (void)state;
    set_policy(policy_allowing("tool", "other"));
    server_says(LOG("info", "hidden"));
    server_says("{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}");
    run_until(server_received(""));
    run_until(list_empty(&server_link()->fan_outs));
    set_policy(policy_allowing("tool", "go"));
    run_to_the_end();
    assert_string_equal(text_of(to_first), END);
}

static void a_changed_list_is_announced_to_sessions_that_listed_it(void **state)
{
    (void)state;
    ask_for(first, "tools/list", "{}");
    ask_for(second, "resources/list", "{}");
    f.server.tools = "[{\"name\":\"new\",\"inputSchema\":{\"type\":\"object\"}}]";
    server_says(CHANGED);
    run_until(to_first->text.len);
    run_to_the_end();
    assert_string_equal(text_of(to_first), CHANGED "\n" END);
    assert_string_equal(text_of(to_second), END);
}

static void an_unchanged_list_is_not_announced(void **state)
{
    (void)state;
    ask_for(first, "tools/list", "{}");
    unsigned before = f.server.listed;
    server_says(CHANGED);
    run_until(f.server.listed > before);
    run_to_the_end();
    assert_string_equal(text_of(to_first), END);
}

static void an_updated_resource_is_announced_to_its_subscribers(void **state)
{
    (void)state;
    ask_for(first, "resources/subscribe", "{\"uri\":\"postern://s/x://a\"}");
    ask_for(second, "resources/subscribe", "{\"uri\":\"postern://s/x://b\"}");
    server_says(UPDATED("x://a"));
    run_to_the_end();
    assert_string_equal(text_of(to_first), UPDATED("postern://s/x://a") "\n" END);
    assert_string_equal(text_of(to_second), END);
}

static void two_sessions_share_one_subscription_at_the_server(void **state)
{
    (void)state;
    ask_for(first, "resources/subscribe", "{\"uri\":\"postern://s/x://a\"}");
    ask_for(second, "resources/subscribe", "{\"uri\":\"postern://s/x://a\"}");
    assert_int_equal(server_received_count("resources/subscribe"), 1);
    ask_for(first, "resources/unsubscribe", "{\"uri\":\"postern://s/x://a\"}");
    server_says(UPDATED("x://a"));
    run_to_the_end();
    assert_string_equal(text_of(to_first), END);
    assert_string_equal(text_of(to_second), UPDATED("postern://s/x://a") "\n" END);
    assert_int_equal(server_received_count("resources/unsubscribe"), 0);
    (void)arrive(ARRIVAL_END, second, NULL);
    run_until(server_received_count("resources/unsubscribe") == 1);
}

static void a_subscription_ends_when_the_policy_no_longer_allows_it(void **state)
{
    (void)state;
    ask_for(first, "resources/subscribe", "{\"uri\":\"postern://s/x://a\"}");
    set_policy(policy_allowing("resource", "x://b"));
    run_until(server_received("resources/unsubscribe"));
    server_says(UPDATED("x://a"));
    run_to_the_end();
    assert_string_equal(text_of(to_first), END);
}

static void disable_server(void)
{
    struct err err;
    json_t *result = gate_control_disable(f.gate, &(struct gate_control_actor){"os", "uid:0", "pid:1"},
                                          &(struct gate_control_target){"default", "s"}, &err);
    assert_non_null(result);
    json_decref(result);
}

static void a_subscription_that_is_being_made_ends_with_a_server_that_is_disabled(void **state)
{
    (void)state;
    f.server.tests_answer = true;
    f.config->timeouts.shutdown_ms = 20000;  // for the calls of the server that is disabled
    struct exchange *exchange = send_message(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/subscribe\","
                                                    "\"params\":{\"uri\":\"postern://s/x://a\"}}");
    run_until(server_received("resources/subscribe"));
    disable_server();
    server_answers(server_received("resources/subscribe"), "{}");
    run_until(is_over(exchange));
    assert_int_equal(exchange->code, ERR_NONE);
    assert_int_equal(session_of(first)->subscribed.count, 0);
    run_until(list_empty(&f.gate->retired) && !f.gate->links_closing);  // the server is freed
    (void)arrive(ARRIVAL_END, first, NULL);
}

// Makes a call that creates a task with this id at the server.
static void make_task(const char *session, const char *task)
{
    char result[128];
    size_t before = server_received_count("tools/call");
    struct exchange *call = send_message(session, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{"
                                                  "\"name\":\"s__go\",\"task\":{\"ttl\":60000}}}");
    run_until(server_received_count("tools/call") > before);
    snprintf(result, sizeof result, "{\"task\":{\"taskId\":\"%s\",\"status\":\"working\"}}", task);
    server_answers(server_received("tools/call"), result);
    run_until(is_over(call));
    assert_int_equal(call->status, 200);
}

static void the_status_of_a_task_is_sent_only_to_its_owner(void **state)
{
    (void)state;
    make_task(first, "t1");
    make_task(second, "t2");
    server_says(STATUS("t1"));
    server_says(STATUS("unknown"));
    run_to_the_end();
    assert_contains(text_of(to_first), "\"notifications/tasks/status\",\"params\":{\"taskId\":\"s.");
    assert_null(strstr(text_of(to_first), "\"t1\""));  // the owner sees the sealed id
    assert_string_equal(text_of(to_second), END);
    server_says(STATUS("t2"));
    run_until(strstr(text_of(to_second), "tasks/status"));
}

// The status arrives before the answer that names the task.
static void the_status_of_a_task_without_an_owner_waits_for_the_answer_that_names_the_task(void **state)
{
    (void)state;
    struct exchange *call = send_message(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{"
                                                "\"name\":\"s__go\",\"task\":{}}}");
    run_until(server_received("tools/call"));
    server_says(STATUS("early"));
    server_says("{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}");
    run_until(server_received(""));
    assert_string_equal(text_of(to_first), "");
    server_answers(server_received("tools/call"), "{\"task\":{\"taskId\":\"early\",\"status\":\"working\"}}");
    run_until(to_first->text.len);
    assert_true(is_over(call));
    assert_contains(text_of(to_first), "tasks/status");
}

static void the_progress_of_a_call_reaches_its_caller_under_the_callers_token(void **state)
{
    (void)state;
    char line[256];
    struct exchange *call = send_message(first, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{"
                                                "\"name\":\"s__go\",\"_meta\":{\"progressToken\":\"mine\"}}}");
    run_until(server_received("tools/call"));
    const json_t *meta = json_object_get(json_object_get(server_received("tools/call"), "params"), "_meta");
    long long token = json_integer_value(json_object_get(meta, "progressToken"));
    snprintf(line, sizeof line,
             "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%lld,"
             "\"progress\":1}}",
             token);
    server_says(line);
    run_until(call->text.len);
    assert_string_equal(text_of(call), "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{"
                                       "\"progressToken\":\"mine\",\"progress\":1}}\n");
    assert_string_equal(text_of(to_first), "");
}

#define TWO(test) cmocka_unit_test_setup_teardown(test, open_two, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TWO(a_log_message_reaches_the_sessions_that_want_its_level),
        TWO(a_server_gets_the_lowest_log_level_that_a_session_wants),
        TWO(a_log_message_without_a_valid_level_is_dropped),
        TWO(a_log_message_goes_to_the_stream_of_the_only_call_in_flight),
        TWO(messages_of_a_server_whose_items_are_all_denied_do_not_reach_a_session),
        TWO(a_changed_list_is_announced_to_sessions_that_listed_it),
        TWO(an_unchanged_list_is_not_announced),
        TWO(an_updated_resource_is_announced_to_its_subscribers),
        TWO(two_sessions_share_one_subscription_at_the_server),
        TWO(a_subscription_ends_when_the_policy_no_longer_allows_it),
        TWO(a_subscription_that_is_being_made_ends_with_a_server_that_is_disabled),
        TWO(the_status_of_a_task_is_sent_only_to_its_owner),
        TWO(the_status_of_a_task_without_an_owner_waits_for_the_answer_that_names_the_task),
        TWO(the_progress_of_a_call_reaches_its_caller_under_the_callers_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
