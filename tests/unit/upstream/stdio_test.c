// Tests one upstream over stdio: its states, exactly one reply for each request and never from inside the send, failures, closing.
#include "base/log.h"
#include "peer.h"
#include "transport.h"
#include "unit.h"
#include <signal.h>
#include <unistd.h>

struct fixture {
    struct loop *loop;
    struct server server;
    struct upstream *upstream;
    int replies, ready;
    int stop_at;      // the loop stops after this many replies
    bool stop_ready;  // or when the upstream is ready
    bool sending;     // inside upstream_request_send()
    bool closed;
    int notifications;
    int pause_at;              // pauses after this many notifications; 0: never
    int turn, last_turn;       // the turn of the loop, and that of the last notification
    int of_turn, of_turn_max;  // notifications in one turn
    struct loop_task each_turn;
    struct ask *when_lost;  // sent from on_state() when the server is lost
};

struct ask {
    struct upstream_request request;
    struct fixture *fixture;
    int replies;
    enum err_code failure;
    char detail[512], result[256], error[256];
};

static void send_ask(struct fixture *f, struct ask *ask, const char *method);

static void on_state(void *arg, struct upstream *upstream)
{
    struct fixture *f = arg;
    struct ask *ask = f->when_lost;
    if (ask && upstream_state(upstream) == UPSTREAM_DOWN) {
        f->when_lost = NULL;
        send_ask(f, ask, "echo");
    }
    if (upstream_state(upstream) != UPSTREAM_READY)
        return;
    f->ready++;
    if (f->stop_ready)
        loop_stop(f->loop);
}

static void on_notification(void *arg, struct upstream *upstream, const struct message *message,
                            struct upstream_request *origin)
{
    (void)message;
    (void)origin;
    struct fixture *f = arg;
    f->of_turn = f->turn == f->last_turn ? f->of_turn + 1 : 1;
    f->of_turn_max = f->of_turn > f->of_turn_max ? f->of_turn : f->of_turn_max;
    f->last_turn = f->turn;
    if (++f->notifications == f->pause_at)
        upstream_pause(upstream);
}

static void on_turn(struct loop_task *task)
{
    struct fixture *f = task->arg;
    f->turn++;
    loop_task_put_later(f->loop, task);
}

static const struct upstream_listener listener = {
    .on_state = on_state, .on_notification = on_notification, .on_request = peer_ignored};

static void set_up(struct fixture *f, const char *command)
{
    struct err err;
    *f = (struct fixture){.loop = loop_new(&err), .server = peer_server("peer")};
    static char *none[] = {NULL};
    if (command) {
        f->server.command = (char *)(uintptr_t)command;
        f->server.args = none;
    }
    f->upstream = peer_upstream(f->loop, &f->server, &listener, f);
}

static void on_closed(void *arg, struct upstream *upstream)
{
    struct fixture *f = arg;
    assert_ptr_equal(upstream, f->upstream);
    assert_false(f->closed);
    f->closed = true;
    upstream_free(upstream);
    f->upstream = NULL;
    loop_stop(f->loop);
}

static void tear_down(struct fixture *f)
{
    if (f->upstream)
        upstream_close(f->upstream, 3000, on_closed, f);
    while (!f->closed)
        loop_run(f->loop);
    loop_free(f->loop);
}

static void on_reply(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct ask *ask = request->arg;
    struct fixture *f = ask->fixture;
    assert_false(f->sending);
    assert_int_equal((reply->failure != NULL) + (reply->result.at != NULL) + (reply->error.at != NULL), 1);
    ask->replies++;
    if (reply->failure) {
        ask->failure = reply->failure->code;
        memcpy(ask->detail, reply->failure->detail, sizeof ask->detail);
    }
    snprintf(ask->result, sizeof ask->result, "%.*s", SPAN_ARG(reply->result));
    snprintf(ask->error, sizeof ask->error, "%.*s", SPAN_ARG(reply->error));
    if (++f->replies == f->stop_at)
        loop_stop(f->loop);
}

static void send_ask(struct fixture *f, struct ask *ask, const char *method)
{
    *ask = (struct ask){.request = {.on_reply = on_reply, .arg = ask}, .fixture = f};
    upstream_request_reserve(f->upstream, &ask->request);
    f->sending = true;
    upstream_request_send(&ask->request, method, SPAN("{}"));
    f->sending = false;
}

static void run_for(struct fixture *f, int replies)
{
    f->stop_at = f->replies + replies;
    while (f->replies < f->stop_at)
        loop_run(f->loop);
}

static void make_ready(struct fixture *f)
{
    f->stop_ready = true;
    upstream_start(f->upstream);
    while (!f->ready)
        loop_run(f->loop);
    f->stop_ready = false;
}

static void set_up_ready(struct fixture *f)
{
    set_up(f, NULL);
    make_ready(f);
}

static void on_tick(struct loop_timer *timer) { loop_stop(timer->arg); }

// ---- failing --------------------------------------------------------------------------------

static void a_missing_command_fails_requests_from_the_loop(void **state)
{
    (void)state;
    if (under_valgrind())  // posix_spawn() reports success there even if the program does not exist
        skip();
    struct fixture f;
    struct ask asks[3];
    set_up(&f, "no-such-command-here");
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_DOWN);
    for (size_t i = 0; i < COUNT(asks); i++)
        send_ask(&f, &asks[i], "echo");
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_STARTING);
    assert_int_equal(f.replies, 0);
    run_for(&f, 3);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_BACKOFF);
    for (size_t i = 0; i < COUNT(asks); i++) {
        assert_int_equal(asks[i].replies, 1);
        assert_int_equal(asks[i].failure, ERR_UNAVAILABLE);
        assert_contains(asks[i].detail, "no-such-command-here");
    }
    assert_contains(upstream_problem(f.upstream), "no-such-command-here");
    tear_down(&f);
}

static void a_server_that_exits_at_once_fails_waiting_and_later_requests(void **state)
{
    (void)state;
    struct fixture f;
    struct ask first, second;
    set_up(&f, "false");
    send_ask(&f, &first, "echo");
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_STARTING);
    run_for(&f, 1);
    assert_int_equal(first.failure, ERR_UNAVAILABLE);
    assert_contains(first.detail, "exit status 1");
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_BACKOFF);
    send_ask(&f, &second, "echo");
    run_for(&f, 1);
    assert_int_equal(second.failure, ERR_UNAVAILABLE);
    assert_int_equal(first.replies + second.replies, 2);
    assert_int_equal(transport_stdio_pid(f.upstream), 0);
    tear_down(&f);
}

static void a_server_that_never_answers_the_handshake_times_out(void **state)
{
    (void)state;
    struct fixture f;
    struct ask ask;
    set_up(&f, "cat");  // sends the request back, which is not an answer
    f.server.start_timeout_ms = 30;
    send_ask(&f, &ask, "echo");
    run_for(&f, 1);
    assert_int_equal(ask.failure, ERR_UNAVAILABLE);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_BACKOFF);
    tear_down(&f);
}

static void a_request_refused_before_the_close_still_gets_its_reply(void **state)
{
    (void)state;
    struct fixture f;
    struct ask ask;
    set_up(&f, "no-such-command-here");
    send_ask(&f, &ask, "echo");
    upstream_close(f.upstream, 100, on_closed, &f);  // in the same turn, before the loop could fail it
    while (!f.closed)
        loop_run(f.loop);
    loop_free(f.loop);
    assert_int_equal(ask.replies, 1);
}

// ---- answering ------------------------------------------------------------------------------

static void requests_wait_for_the_handshake_and_are_answered(void **state)
{
    (void)state;
    struct fixture f;
    struct ask first, second, third;
    set_up(&f, NULL);
    send_ask(&f, &first, "echo");
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_STARTING);
    assert_true(peer_wait_pid(f.loop, f.upstream) > 0);
    send_ask(&f, &second, "refuse");
    run_for(&f, 2 - f.replies);
    assert_string_equal(first.result, "{\"n\":1.0}");
    assert_string_equal(second.error, "{\"code\":-5,\"message\":\"no\"}");
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_READY);
    assert_int_equal(upstream_revision(f.upstream), REVISION_2025_11_25);
    assert_true(upstream_abilities(f.upstream)->tools && upstream_abilities(f.upstream)->resources);
    assert_false(upstream_abilities(f.upstream)->tasks || upstream_abilities(f.upstream)->logging);
    assert_span(upstream_instructions(f.upstream), SPAN("be kind"), "instructions");
    assert_string_equal(upstream_problem(f.upstream), "");
    send_ask(&f, &third, "echo");
    run_for(&f, 1);
    assert_int_equal(third.failure, ERR_NONE);
    tear_down(&f);
}

static void concurrent_requests_each_get_their_own_reply(void **state)
{
    (void)state;
    enum { MANY = 200 };
    static struct ask asks[MANY];
    struct fixture f;
    set_up_ready(&f);
    for (size_t i = 0; i < MANY; i++)
        send_ask(&f, &asks[i], i % 3 ? "echo" : "refuse");
    run_for(&f, MANY);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(asks[i].replies, 1);
        assert_int_equal(asks[i].error[0] != '\0', i % 3 == 0);
    }
    tear_down(&f);
}

static void a_request_without_an_answer_in_time_times_out(void **state)
{
    (void)state;
    struct fixture f;
    struct ask silent, after;
    set_up_ready(&f);
    f.server.timeout_ms = 20;
    send_ask(&f, &silent, "silent");
    run_for(&f, 1);
    assert_int_equal(silent.failure, ERR_UPSTREAM_TIMEOUT);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_READY);
    f.server.timeout_ms = 20000;
    send_ask(&f, &after, "echo");
    run_for(&f, 1);
    assert_int_equal(after.failure, ERR_NONE);
    assert_int_equal(silent.replies, 1);
    tear_down(&f);
}

static void a_cancelled_request_is_not_called_back(void **state)
{
    (void)state;
    struct fixture f;
    struct ask waiting, sent, after;
    set_up(&f, NULL);
    send_ask(&f, &waiting, "echo");
    upstream_request_cancel(&waiting.request, "test");
    make_ready(&f);
    send_ask(&f, &sent, "echo");
    upstream_request_cancel(&sent.request, "test");
    upstream_request_cancel(&sent.request, "test");
    send_ask(&f, &after, "echo");
    run_for(&f, 1);
    assert_int_equal(after.replies, 1);
    assert_int_equal(waiting.replies + sent.replies, 0);
    tear_down(&f);
}

static void a_server_that_dies_fails_requests_in_flight_and_is_restarted_by_the_next(void **state)
{
    (void)state;
    struct fixture f;
    struct ask die, other, after;
    set_up_ready(&f);
    long before = peer_wait_pid(f.loop, f.upstream);
    send_ask(&f, &die, "die");
    send_ask(&f, &other, "echo");
    run_for(&f, 2);
    assert_int_equal(die.failure, ERR_UPSTREAM_DIED);
    assert_contains(die.detail, "exit status 3");
    assert_int_equal(other.failure, ERR_UPSTREAM_DIED);
    send_ask(&f, &after, "echo");
    run_for(&f, 1);
    assert_string_equal(after.result, "{\"n\":1.0}");
    assert_int_not_equal(peer_wait_pid(f.loop, f.upstream), before);
    tear_down(&f);
}

static void a_request_sent_while_the_loss_is_reported_is_answered_by_the_restarted_server(void **state)
{
    (void)state;
    struct fixture f;
    struct ask die, again;
    set_up_ready(&f);
    f.when_lost = &again;
    send_ask(&f, &die, "die");
    run_for(&f, 2);
    assert_int_equal(die.failure, ERR_UPSTREAM_DIED);
    assert_int_equal(again.failure, ERR_NONE);
    assert_string_equal(again.result, "{\"n\":1.0}");
    tear_down(&f);
}

// ---- notifications --------------------------------------------------------------------------

static void count_turns(struct fixture *f)
{
    f->each_turn = (struct loop_task){.run = on_turn, .arg = f};
    loop_task_put(f->loop, &f->each_turn);
}

static void messages_from_one_read_are_delivered_over_several_turns_and_in_order(void **state)
{
    (void)state;
    struct fixture f;
    struct ask ask;
    set_up_ready(&f);
    count_turns(&f);
    send_ask(&f, &ask, "chatter");
    run_for(&f, 1);
    assert_int_equal(ask.failure, ERR_NONE);
    assert_int_equal(f.notifications, PEER_CHATTER);  // all notifications arrive before the answer
    assert_true(f.of_turn_max <= 128);
    loop_task_drop(&f.each_turn);
    tear_down(&f);
}

static void messages_of_a_paused_server_wait(void **state)
{
    (void)state;
    struct fixture f;
    struct ask ask;
    set_up_ready(&f);
    count_turns(&f);
    f.pause_at = 10;
    send_ask(&f, &ask, "chatter");
    struct loop_timer tick = {.on_due = on_tick, .arg = f.loop};
    while (f.notifications < f.pause_at || f.turn < f.last_turn + 20) {
        loop_timer_set(f.loop, &tick, 1);
        loop_run(f.loop);
    }
    assert_int_equal(f.notifications, 10);
    upstream_resume(f.upstream);
    upstream_resume(f.upstream);
    run_for(&f, 1);
    assert_int_equal(f.notifications, PEER_CHATTER);
    assert_int_equal(ask.failure, ERR_NONE);
    loop_task_drop(&f.each_turn);
    tear_down(&f);
}

static void last_messages_of_a_server_are_delivered_before_its_loss_is_reported(void **state)
{
    (void)state;
    for (int pause_at = 0; pause_at < 20; pause_at += 10) {
        struct fixture f;
        struct ask ask, lost;
        set_up(&f, NULL);
        make_ready(&f);
        pid_t pid = (pid_t)peer_wait_pid(f.loop, f.upstream);
        f.pause_at = pause_at;
        send_ask(&f, &ask, "farewell");
        send_ask(&f, &lost, "silent");
        struct loop_timer tick = {.on_due = on_tick, .arg = f.loop};
        while (f.notifications < pause_at || (pause_at && kill(pid, 0) == 0)) {
            loop_timer_set(f.loop, &tick, 1);
            loop_run(f.loop);
        }
        assert_int_equal(ask.replies, 0);
        upstream_resume(f.upstream);
        run_for(&f, 2);
        assert_int_equal(f.notifications, PEER_CHATTER);
        assert_int_equal(ask.failure, ERR_NONE);
        assert_int_equal(lost.failure, ERR_UPSTREAM_DIED);
        tear_down(&f);
    }
}

// ---- closing --------------------------------------------------------------------------------

static void open_requests_fail_when_the_server_is_closed(void **state)
{
    (void)state;
    struct fixture f;
    struct ask in_flight;
    set_up_ready(&f);
    send_ask(&f, &in_flight, "silent");
    tear_down(&f);
    assert_int_equal(in_flight.replies, 1);
    assert_int_equal(in_flight.failure, ERR_UNAVAILABLE);
}

static void waiting_requests_fail_when_a_starting_server_is_closed(void **state)
{
    (void)state;
    struct fixture f;
    struct ask waiting;
    set_up(&f, NULL);
    send_ask(&f, &waiting, "echo");
    tear_down(&f);
    assert_int_equal(waiting.replies, 1);
    assert_int_equal(waiting.failure, ERR_UNAVAILABLE);
}

static void a_server_that_never_started_is_closed_at_once(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, NULL);
    upstream_close(f.upstream, 3000, on_closed, &f);
    assert_true(f.closed);
    loop_free(f.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_command_fails_requests_from_the_loop),
        cmocka_unit_test(a_server_that_exits_at_once_fails_waiting_and_later_requests),
        cmocka_unit_test(a_server_that_never_answers_the_handshake_times_out),
        cmocka_unit_test(a_request_refused_before_the_close_still_gets_its_reply),
        cmocka_unit_test(requests_wait_for_the_handshake_and_are_answered),
        cmocka_unit_test(concurrent_requests_each_get_their_own_reply),
        cmocka_unit_test(a_request_without_an_answer_in_time_times_out),
        cmocka_unit_test(a_cancelled_request_is_not_called_back),
        cmocka_unit_test(a_server_that_dies_fails_requests_in_flight_and_is_restarted_by_the_next),
        cmocka_unit_test(a_request_sent_while_the_loss_is_reported_is_answered_by_the_restarted_server),
        cmocka_unit_test(messages_from_one_read_are_delivered_over_several_turns_and_in_order),
        cmocka_unit_test(messages_of_a_paused_server_wait),
        cmocka_unit_test(last_messages_of_a_server_are_delivered_before_its_loss_is_reported),
        cmocka_unit_test(open_requests_fail_when_the_server_is_closed),
        cmocka_unit_test(waiting_requests_fail_when_a_starting_server_is_closed),
        cmocka_unit_test(a_server_that_never_started_is_closed_at_once),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    signal(SIGPIPE, SIG_IGN);  // as the gateway does: a server may end while it is written to
    alarm(60);                 // a reply that does not arrive fails the test
    return cmocka_run_group_tests(tests, NULL, NULL);
}
