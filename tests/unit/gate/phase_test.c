// Tests the phases of a call: with any outcome, the call is answered at most once and recorded exactly once, and no call reaches
// a server that the policy in force does not allow.
#include "fixture.h"
#include "phase.h"

#define LIST "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\"}"
#define CALL "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"s__go\",\"arguments\":{}}}"
#define CANCEL \
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":7,\"reason\":\"enough\"}}"

// The audit log has one row with this status, and the log has one line with this reason.
static void assert_recorded(const char *method, enum audit_status want, enum err_code code)
{
    char called[64], reason[64];
    enum audit_status status = AUDIT_ERROR;
    snprintf(called, sizeof called, "\"method\":\"%s\"", method);
    snprintf(reason, sizeof reason, "\"reason\":\"%s\"", err_reason(code));
    assert_int_equal(audit_rows(method, &status), 1);
    assert_int_equal(status, want);
    assert_int_equal(log_lines(called, ""), 1);
    assert_int_equal(log_lines(called, reason), 1);
}

static char *open_with_tool(void)
{
    char *session = open_session("2025-11-25", "{}");
    run_until(server_is_up());
    return session;
}

static void a_call_passes_through_all_phases_and_is_recorded_once(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    struct exchange *call = call_tool(session, "7");
    assert_int_equal(call->answers, 0);
    assert_json(json_object_get(json_object_get(server_received("tools/call"), "params"), "name"), "\"go\"");
    server_answers(server_received("tools/call"), "{\"content\":[]}");
    run_until(is_over(call));
    assert_int_equal(call->answers + call->streams, 1);
    assert_int_equal(call->status, 200);
    assert_string_equal(text_of(call), "{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[]}}");
    assert_recorded("tools/call", AUDIT_OK, ERR_NONE);
}

static void a_denied_call_is_recorded_once_and_does_not_reach_a_server(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    set_policy(policy_allowing("tool", "other"));
    struct exchange *call = send_message(session, CALL);
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->code, ERR_DENIED);
    assert_contains(text_of(call), "\"rule\":\"default\"");
    assert_recorded("tools/call", AUDIT_DENIED, ERR_DENIED);
    assert_int_equal(server_received_count("tools/call"), 0);
}

static void a_text_that_is_not_json_is_answered_and_logged_once(void **state)
{
    (void)state;
    struct exchange *call = send_message(NULL, "{\"jsonrpc\":\"2.0\",");
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->status, 400);
    assert_int_equal(call->code, ERR_PARSE);
    assert_int_equal(log_lines("", ""), 1);
    assert_true(list_empty(&f.gate->calls));
}

static void a_call_of_an_unauthenticated_caller_ends_before_the_session_phase(void **state)
{
    (void)state;
    const char *session = open_session("2025-11-25", "{}");
    int before = log_lines("", "");
    struct exchange *call = exchange_new(ARRIVAL_MESSAGE, session, LIST);
    call->arrival.credentials.local = false;  // the provider `none` rejects it
    gate_arrive(f.gate, &call->arrival);
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->status, 401);
    assert_int_equal(log_lines("", ""), before + 1);
    assert_false(call->arrival.authenticated);
    assert_true(list_empty(&session_of(session)->calls));
}

// The face asks before it reads a large body.
static void a_caller_that_was_admitted_before_its_body_is_not_authenticated_again(void **state)
{
    (void)state;
    const char *session = open_session("2025-11-25", "{}");
    struct exchange *call = exchange_new(ARRIVAL_MESSAGE, session, LIST);
    assert_true(gate_welcomes(f.gate, &call->arrival));
    call->arrival.credentials.local = false;  // the provider `none` would reject it now
    gate_arrive(f.gate, &call->arrival);
    assert_int_equal(call->status, 200);
}

static void a_caller_that_was_refused_before_its_body_is_not_authenticated_again(void **state)
{
    (void)state;
    const char *session = open_session("2025-11-25", "{}");
    struct exchange *call = exchange_new(ARRIVAL_MESSAGE, session, NULL);
    call->arrival.credentials.local = false;
    assert_false(gate_welcomes(f.gate, &call->arrival));
    call->arrival.credentials.local = true;  // the provider `none` would accept it now
    call->arrival.op = ARRIVAL_UNREAD;
    gate_arrive(f.gate, &call->arrival);
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->status, 401);
}

static void a_call_whose_caller_disconnected_is_recorded_once_as_gone(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    struct exchange *call = call_tool(session, "7");
    hang_up(call);
    server_answers(server_received("tools/call"), "{\"content\":[]}");
    run_until(list_empty(&f.gate->calls));
    assert_int_equal(call->answers + call->streams, 0);
    assert_recorded("tools/call", AUDIT_GONE, ERR_NONE);
}

static void a_cancelled_call_is_recorded_once_and_its_server_gets_the_reason(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    struct exchange *call = call_tool(session, "7");
    assert_int_equal(send_message(session, CANCEL)->status, 202);
    assert_int_equal(call->answers, 0);  // a cancelled call ends with an empty stream
    assert_int_equal(call->streams, 1);
    assert_true(is_over(call));
    assert_string_equal(text_of(call), "");
    run_until(server_received("notifications/cancelled"));
    const json_t *params = json_object_get(server_received("notifications/cancelled"), "params");
    assert_json(json_object_get(params, "reason"), "\"enough\"");
    assert_true(json_equal(json_object_get(params, "requestId"), json_object_get(server_received("tools/call"), "id")));
    server_answers(server_received("tools/call"), "{\"content\":[]}");  // is ignored
    server_says("{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}");
    run_until(server_received(""));
    assert_recorded("tools/call", AUDIT_CANCELLED, ERR_CANCELLED);
}

static void a_call_aborted_at_shutdown_is_answered_and_recorded_once(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    struct exchange *call = call_tool(session, "7");
    shut_down();
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->code, ERR_SHUTTING_DOWN);
    assert_contains(text_of(call), "the server may have executed the call");
    assert_recorded("tools/call", AUDIT_ERROR, ERR_SHUTTING_DOWN);
}

static void a_gate_that_shuts_down_refuses_new_calls(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    struct exchange *waiting = call_tool(session, "6");
    f.config->timeouts.shutdown_ms = RUN_UNTIL_MS;
    gate_shutdown(f.gate, fixture_on_stopped, &f.stopped);
    struct exchange *late = send_message(session, CALL);
    assert_int_equal(late->answers, 1);
    assert_int_equal(late->code, ERR_SHUTTING_DOWN);
    server_answers(server_received("tools/call"), "{\"content\":[]}");  // calls in flight may finish
    run_until(f.stopped);
    assert_int_equal(waiting->status, 200);
}

// Sends a call that was authorized and waits until its server has restarted.
static struct exchange *send_call_that_waits(const char *session)
{
    server_dies();
    f.server.keeps_quiet = true;
    struct exchange *call = send_message(session, CALL);
    run_until(f.server.unstarted);
    return call;
}

static void a_waiting_call_is_denied_by_a_policy_that_took_effect_meanwhile(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    struct exchange *call = send_call_that_waits(session);
    assert_int_equal(call->answers, 0);
    set_policy(policy_allowing("tool", "other"));
    assert_int_equal(call->answers, 0);
    server_starts();
    run_until(is_over(call));
    assert_int_equal(call->code, ERR_DENIED);
    assert_recorded("tools/call", AUDIT_DENIED, ERR_DENIED);
    run_until(server_is_up());
    assert_int_equal(server_received_count("tools/call"), 0);
}

static void a_waiting_call_is_sent_if_the_new_policy_also_allows_it(void **state)
{
    (void)state;
    const char *session = open_with_tool();
    struct exchange *call = send_call_that_waits(session);
    set_policy(policy_allowing("tool", "go"));
    server_starts();
    run_until(server_received("tools/call"));
    server_answers(server_received("tools/call"), "{\"content\":[]}");
    run_until(is_over(call));
    assert_int_equal(call->status, 200);
    assert_recorded("tools/call", AUDIT_OK, ERR_NONE);
}

static void a_call_waits_for_the_lists_of_a_server_that_starts(void **state)
{
    (void)state;
    f.server.keeps_quiet = true;
    const char *session = open_session("2025-11-25", "{}");
    struct exchange *call = send_message(session, LIST);
    run_until(f.server.unstarted);
    assert_int_equal(call->answers, 0);
    server_starts();
    run_until(is_over(call));
    assert_contains(text_of(call), "\"s__go\"");
    assert_recorded("tools/list", AUDIT_OK, ERR_NONE);
}

// ---- invariants -----------------------------------------------------------------------------

static struct call *call_at(enum phase phase)
{
    struct call *call = call_new(f.gate);
    call->phase = phase;
    return call;
}

static void dispatch_unauthorized(void) { phase_runner.run(call_at(PHASE_DISPATCH)); }

static void dispatch_under_an_old_policy(void)
{
    struct call *call = call_at(PHASE_DISPATCH);
    call->decision.verdict = VERDICT_ALLOW;
    f.gate->policy_epoch = call->judged_epoch + 1;
    phase_runner.run(call);
}

static void finish_unrecorded(void) { phase_runner.run(call_at(PHASES)); }

static void a_call_that_breaks_an_invariant_aborts_the_process(void **state)
{
    (void)state;
    assert_aborts(dispatch_unauthorized);
    assert_aborts(dispatch_under_an_old_policy);
    assert_aborts(finish_unrecorded);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, open_with_server, fixture_close)
#define ALONE(test) cmocka_unit_test_setup_teardown(test, open_alone, fixture_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(a_call_passes_through_all_phases_and_is_recorded_once),
        WITH_SERVER(a_denied_call_is_recorded_once_and_does_not_reach_a_server),
        ALONE(a_text_that_is_not_json_is_answered_and_logged_once),
        ALONE(a_call_of_an_unauthenticated_caller_ends_before_the_session_phase),
        ALONE(a_caller_that_was_admitted_before_its_body_is_not_authenticated_again),
        ALONE(a_caller_that_was_refused_before_its_body_is_not_authenticated_again),
        WITH_SERVER(a_call_whose_caller_disconnected_is_recorded_once_as_gone),
        WITH_SERVER(a_cancelled_call_is_recorded_once_and_its_server_gets_the_reason),
        WITH_SERVER(a_call_aborted_at_shutdown_is_answered_and_recorded_once),
        WITH_SERVER(a_gate_that_shuts_down_refuses_new_calls),
        WITH_SERVER(a_waiting_call_is_denied_by_a_policy_that_took_effect_meanwhile),
        WITH_SERVER(a_waiting_call_is_sent_if_the_new_policy_also_allows_it),
        WITH_SERVER(a_call_waits_for_the_lists_of_a_server_that_starts),
        ALONE(a_call_that_breaks_an_invariant_aborts_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
