// Tests how an upstream recovers: which failures count, when requests wait for the next start, and when the circuit opens and closes.
#include "base/log.h"
#include "peer.h"
#include "transport.h"
#include "unit.h"
#include "upstream.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define ASKS 16

struct ask {
    struct upstream_request request;
    struct fixture *fixture;
    int replies;
    enum err_code failure;
    int64_t retry_after_ms;
    char detail[512];
};

struct fixture {
    struct loop *loop;
    struct server server;
    struct upstream *upstream;
    char folder[64], file[96];  // the server starts only if the file exists
    char script[8192];
    char *args[3];
    struct ask asks[ASKS];
    size_t asked;
    int replies, stop_at;
    enum upstream_state stop_in;
    bool stop_in_state, closed;
};

static void on_state(void *arg, struct upstream *upstream)
{
    struct fixture *f = arg;
    if (f->stop_in_state && upstream_state(upstream) == f->stop_in)
        loop_stop(f->loop);
}

static const struct upstream_listener listener = {
    .on_state = on_state, .on_notification = peer_ignored, .on_request = peer_ignored};

static void allow_start(const struct fixture *f)
{
    int fd = open(f->file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void set_up(struct fixture *f, bool starts)
{
    struct err err;
    *f = (struct fixture){.loop = loop_new(&err), .server = peer_server("peer"), .folder = "/tmp/postern-unit-XXXXXX"};
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->file, sizeof f->file, "%s/start", f->folder);
    snprintf(f->script, sizeof f->script, "[ -e %s ] || { printf 'one\\n\\033[31mtwo\\a\\n' >&2; exit 7; }\n%s",
             f->file, PEER_SCRIPT);
    f->args[0] = "-c";
    f->args[1] = f->script;
    f->server.args = f->args;
    f->upstream = peer_upstream(f->loop, &f->server, &listener, f);
    if (starts)
        allow_start(f);
}

static void on_closed(void *arg, struct upstream *upstream)
{
    struct fixture *f = arg;
    f->closed = true;
    upstream_free(upstream);
    loop_stop(f->loop);
}

static void tear_down(struct fixture *f)
{
    upstream_close(f->upstream, 3000, on_closed, f);
    while (!f->closed)
        loop_run(f->loop);
    loop_free(f->loop);
    (void)unlink(f->file);
    assert_int_equal(rmdir(f->folder), 0);
}

static void on_reply(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct ask *ask = request->arg;
    ask->replies++;
    if (reply->failure) {
        ask->failure = reply->failure->code;
        ask->retry_after_ms = reply->failure->retry_after_ms;
        memcpy(ask->detail, reply->failure->detail, sizeof ask->detail);
    }
    if (++ask->fixture->replies == ask->fixture->stop_at)
        loop_stop(ask->fixture->loop);
}

static struct ask *send_ask(struct fixture *f, const char *method)
{
    struct ask *ask = &f->asks[f->asked++ % ASKS];
    *ask = (struct ask){.request = {.on_reply = on_reply, .arg = ask}, .fixture = f};
    upstream_request_reserve(f->upstream, &ask->request);
    upstream_request_send(&ask->request, method, SPAN("{}"));
    return ask;
}

static void run_for(struct fixture *f, int replies)
{
    f->stop_at = f->replies + replies;
    while (f->replies < f->stop_at)
        loop_run(f->loop);
}

static struct ask *ask_once(struct fixture *f, const char *method)
{
    struct ask *ask = send_ask(f, method);
    run_for(f, 1);
    assert_int_equal(ask->replies, 1);
    return ask;
}

static void run_until(struct fixture *f, enum upstream_state state)
{
    f->stop_in = state;
    f->stop_in_state = true;
    while (upstream_state(f->upstream) != state)
        loop_run(f->loop);
    f->stop_in_state = false;
}

static void on_tick(struct loop_timer *timer) { loop_stop(timer->arg); }

static void wait_ms(struct fixture *f, int64_t ms)
{
    struct loop_timer tick = {.on_due = on_tick, .arg = f->loop};
    loop_timer_set(f->loop, &tick, ms);
    while (tick.slot)
        loop_run(f->loop);
}

static void end_pause(struct fixture *f) { loop_timer_set(f->loop, &f->upstream->retry, 0); }

static void open_circuit(struct fixture *f)
{
    upstream_start(f->upstream);
    for (int i = 1; i <= UPSTREAM_CIRCUIT_AFTER; i++) {
        assert_false(upstream_circuit_open(f->upstream));
        run_until(f, UPSTREAM_BACKOFF);
        if (i == UPSTREAM_CIRCUIT_AFTER)
            break;
        end_pause(f);
        run_until(f, UPSTREAM_STARTING);
    }
    assert_true(upstream_circuit_open(f->upstream));
}

// ---- which failures count -------------------------------------------------------------------

static void a_server_that_answers_and_dies_again_and_again_is_always_restarted_by_the_next_request(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, true);
    for (int life = 0; life < 2 * UPSTREAM_CIRCUIT_AFTER; life++) {
        assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
        assert_int_equal(ask_once(&f, "die")->failure, ERR_UPSTREAM_DIED);
        assert_int_equal(upstream_state(f.upstream), UPSTREAM_DOWN);
    }
    tear_down(&f);
}

static void lives_without_an_answer_open_the_circuit(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, true);
    for (int life = 0; life < UPSTREAM_CIRCUIT_AFTER; life++) {
        assert_false(upstream_circuit_open(f.upstream));
        struct ask *ask = send_ask(&f, "die");
        if (upstream_state(f.upstream) == UPSTREAM_BACKOFF)
            end_pause(&f);
        run_for(&f, 1);
        assert_int_equal(ask->failure, ERR_UPSTREAM_DIED);
    }
    assert_true(upstream_circuit_open(f.upstream));
    tear_down(&f);
}

static void the_pause_after_failures_grows_and_is_spread(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    upstream_start(f.upstream);
    for (int64_t longest = 500, i = 0; i < 8; i++, longest = longest < 15000 ? longest * 2 : 30000) {
        run_until(&f, UPSTREAM_BACKOFF);
        int64_t pause = f.upstream->retry.due_ms - loop_now(f.loop);
        assert_in_range(pause, longest / 2, longest);
        end_pause(&f);
        run_until(&f, UPSTREAM_STARTING);
    }
    tear_down(&f);
}

// ---- requests during a pause ----------------------------------------------------------------

static void a_request_in_the_pause_after_a_failed_start_waits_for_the_next_start(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_UNAVAILABLE);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_BACKOFF);
    allow_start(&f);
    struct ask *later = ask_once(&f, "echo");
    assert_int_equal(later->failure, ERR_NONE);
    tear_down(&f);
}

static void a_request_fails_at_once_while_the_circuit_is_open(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    open_circuit(&f);
    struct ask *ask = ask_once(&f, "echo");
    assert_int_equal(ask->failure, ERR_UNAVAILABLE);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_BACKOFF);
    assert_in_range(ask->retry_after_ms, 1, 8000);
    assert_contains(ask->detail, "circuit open after 5 failures in a row");
    assert_contains(ask->detail, "exit status 7");
    tear_down(&f);
}

static void a_start_that_succeeds_closes_the_circuit(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    open_circuit(&f);
    allow_start(&f);
    end_pause(&f);
    run_until(&f, UPSTREAM_READY);
    assert_false(upstream_circuit_open(f.upstream));
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
    assert_int_equal(f.upstream->failures, 0);
    tear_down(&f);
}

static void a_server_that_starts_but_dies_unanswered_opens_the_circuit_again(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    open_circuit(&f);
    allow_start(&f);
    end_pause(&f);
    run_until(&f, UPSTREAM_READY);
    assert_int_equal(ask_once(&f, "die")->failure, ERR_UPSTREAM_DIED);
    assert_true(upstream_circuit_open(f.upstream));
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_UNAVAILABLE);
    tear_down(&f);
}

// ---- requests that were not sent ------------------------------------------------------------

// Two of them fill the pipe, so that what follows cannot be written.
static struct ask *send_large(struct fixture *f)
{
    static char params[900000];
    memset(params, ' ', sizeof params);
    memcpy(params, "{}", 2);
    struct ask *ask = &f->asks[f->asked++ % ASKS];
    *ask = (struct ask){.request = {.on_reply = on_reply, .arg = ask}, .fixture = f};
    upstream_request_reserve(f->upstream, &ask->request);
    upstream_request_send(&ask->request, "echo", span_make(params, sizeof params));
    return ask;
}

static void a_request_of_which_nothing_was_written_is_sent_to_the_next_life(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, true);
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
    struct ask *doze = send_ask(&f, "doze"), *written = send_large(&f), *begun = send_large(&f),
               *unsent = send_ask(&f, "echo");
    run_for(&f, 4);
    assert_int_equal(written->failure, ERR_UPSTREAM_DIED);
    assert_int_equal(doze->failure, ERR_UPSTREAM_DIED);
    assert_int_equal(begun->failure, ERR_UPSTREAM_DIED);  // of which the server may have seen a part
    assert_int_equal(unsent->failure, ERR_NONE);
    tear_down(&f);
}

static void a_request_that_the_next_life_received_is_not_sent_again(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, true);
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
    (void)send_ask(&f, "doze");
    (void)send_large(&f);
    (void)send_large(&f);
    struct ask *unsent = send_ask(&f, "die");
    run_for(&f, 4);
    assert_int_equal(unsent->failure, ERR_UPSTREAM_DIED);
    assert_int_equal(unsent->replies, 1);
    tear_down(&f);
}

// ---- servers that hang ----------------------------------------------------------------------

// Sends a request that the server does not answer in time, and another one after that.
static void time_out_twice(struct fixture *f, const char *first)
{
    assert_int_equal(ask_once(f, first)->failure, ERR_UPSTREAM_TIMEOUT);
    assert_int_equal(ask_once(f, "silent")->failure, ERR_UPSTREAM_TIMEOUT);
}

static void set_up_answered(struct fixture *f, int64_t timeout_ms)
{
    set_up(f, true);
    assert_int_equal(ask_once(f, "echo")->failure, ERR_NONE);
    f->server.timeout_ms = timeout_ms;
}

static void a_server_that_hangs_is_replaced_within_three_timeouts(void **state)
{
    (void)state;
    struct fixture f;
    set_up_answered(&f, 1000);
    long before = peer_wait_pid(f.loop, f.upstream);
    int64_t began_ms = loop_now(f.loop);
    time_out_twice(&f, "hang");
    struct ask *pending = ask_once(&f, "echo");
    assert_in_range(loop_now(f.loop) - began_ms, 2000, 3000);
    assert_int_equal(pending->failure, ERR_UPSTREAM_DIED);
    assert_contains(pending->detail, "hangs and is replaced");
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
    assert_int_not_equal(peer_wait_pid(f.loop, f.upstream), before);
    tear_down(&f);
}

static void requests_that_time_out_together_count_once(void **state)
{
    (void)state;
    struct fixture f;
    set_up_answered(&f, 200);
    (void)send_ask(&f, "hang");
    (void)send_ask(&f, "echo");
    (void)send_ask(&f, "echo");
    run_for(&f, 3);
    assert_null(f.upstream->ping.upstream);
    tear_down(&f);
}

static void a_slow_server_that_answers_pings_is_kept(void **state)
{
    (void)state;
    struct fixture f;
    set_up_answered(&f, 200);
    long before = peer_wait_pid(f.loop, f.upstream);
    time_out_twice(&f, "silent");
    assert_non_null(f.upstream->ping.upstream);
    f.server.timeout_ms = 20000;
    upstream_request_hold(&f.upstream->ping, 20000);  // however busy the machine is
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
    assert_null(f.upstream->ping.upstream);
    assert_int_equal(peer_wait_pid(f.loop, f.upstream), before);
    tear_down(&f);
}

static void a_server_that_still_writes_is_kept(void **state)
{
    (void)state;
    struct fixture f;
    set_up_answered(&f, 500);
    time_out_twice(&f, "mutter");
    assert_null(f.upstream->ping.upstream);
    assert_int_equal(ask_once(&f, "silent")->failure, ERR_UPSTREAM_TIMEOUT);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_READY);
    tear_down(&f);
}

static void a_server_that_is_silent_during_a_call_that_may_take_long_is_kept(void **state)
{
    (void)state;
    struct fixture f;
    set_up_answered(&f, 200);
    struct ask *nap = &f.asks[f.asked++];
    *nap = (struct ask){.request = {.on_reply = on_reply, .arg = nap, .timeout_ms = 20000}, .fixture = &f};
    upstream_request_reserve(f.upstream, &nap->request);
    upstream_request_send(&nap->request, "nap", SPAN("{}"));
    time_out_twice(&f, "silent");
    assert_null(f.upstream->ping.upstream);
    run_for(&f, 1);
    assert_int_equal(nap->replies, 1);
    assert_int_equal(nap->failure, ERR_NONE);
    tear_down(&f);
}

static void a_server_does_not_rest_while_a_request_is_in_flight(void **state)
{
    (void)state;
    struct fixture f;
    set_up_answered(&f, 20000);
    assert_false(upstream_in_use(f.upstream));
    struct ask *nap = send_ask(&f, "nap");
    assert_true(upstream_in_use(f.upstream));
    upstream_rest(f.upstream, 50);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_READY);
    run_for(&f, 1);
    assert_int_equal(nap->failure, ERR_NONE);
    assert_false(upstream_in_use(f.upstream));
    upstream_rest(f.upstream, 50);
    run_until(&f, UPSTREAM_DOWN);
    tear_down(&f);
}

// The server is ended while it still owes the answer to a ping.
static void a_ping_does_not_outlive_the_server_that_it_was_sent_to(void **state)
{
    (void)state;
    struct fixture f;
    set_up_answered(&f, 400);
    time_out_twice(&f, "hang");
    assert_non_null(f.upstream->ping.upstream);
    upstream_rest(f.upstream, 50);
    run_until(&f, UPSTREAM_DOWN);
    wait_ms(&f, 600);
    assert_int_equal(upstream_state(f.upstream), UPSTREAM_DOWN);
    f.server.timeout_ms = 20000;
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
    tear_down(&f);
}

// ---- resting --------------------------------------------------------------------------------

static void a_server_that_is_lost_while_it_rests_is_lost_again_in_its_next_life(void **state)
{
    (void)state;
    struct fixture f;
    struct err err;
    set_up_answered(&f, 20000);
    upstream_rest(f.upstream, 3000);
    (void)err_set(&err, ERR_UPSTREAM_DIED, "lost");
    transport_lose(f.upstream, &err);
    run_until(&f, UPSTREAM_DOWN);
    assert_int_equal(ask_once(&f, "echo")->failure, ERR_NONE);
    transport_lose(f.upstream, &err);
    run_until(&f, UPSTREAM_DOWN);
    assert_string_equal(upstream_problem(f.upstream), "lost");
    tear_down(&f);
}

// ---- errors ---------------------------------------------------------------------------------

static void the_error_of_a_request_has_the_exit_status_and_the_last_lines_of_stderr(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, false);
    struct ask *ask = ask_once(&f, "echo");
    struct err err;
    (void)err_set(&err, ask->failure, "%s", ask->detail);
    upstream_add_stderr(f.upstream, &err);
    assert_string_equal(err.detail, "server \"peer\" ended: exit status 7; its last lines on stderr: one |  [31mtwo ");
    assert_string_equal(upstream_problem(f.upstream), "server \"peer\" ended: exit status 7");
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_answers_and_dies_again_and_again_is_always_restarted_by_the_next_request),
        cmocka_unit_test(lives_without_an_answer_open_the_circuit),
        cmocka_unit_test(the_pause_after_failures_grows_and_is_spread),
        cmocka_unit_test(a_request_in_the_pause_after_a_failed_start_waits_for_the_next_start),
        cmocka_unit_test(a_request_fails_at_once_while_the_circuit_is_open),
        cmocka_unit_test(a_start_that_succeeds_closes_the_circuit),
        cmocka_unit_test(a_server_that_starts_but_dies_unanswered_opens_the_circuit_again),
        cmocka_unit_test(a_request_of_which_nothing_was_written_is_sent_to_the_next_life),
        cmocka_unit_test(a_request_that_the_next_life_received_is_not_sent_again),
        cmocka_unit_test(a_server_that_hangs_is_replaced_within_three_timeouts),
        cmocka_unit_test(requests_that_time_out_together_count_once),
        cmocka_unit_test(a_slow_server_that_answers_pings_is_kept),
        cmocka_unit_test(a_server_that_still_writes_is_kept),
        cmocka_unit_test(a_server_that_is_silent_during_a_call_that_may_take_long_is_kept),
        cmocka_unit_test(a_server_does_not_rest_while_a_request_is_in_flight),
        cmocka_unit_test(a_ping_does_not_outlive_the_server_that_it_was_sent_to),
        cmocka_unit_test(a_server_that_is_lost_while_it_rests_is_lost_again_in_its_next_life),
        cmocka_unit_test(the_error_of_a_request_has_the_exit_status_and_the_last_lines_of_stderr),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    signal(SIGPIPE, SIG_IGN);  // as the gateway does: a server may end while it is written to
    alarm(60);                 // a reply that does not arrive fails the test
    return cmocka_run_group_tests(tests, NULL, NULL);
}
