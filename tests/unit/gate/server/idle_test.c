// Tests how long servers may be idle, by how often they are used and how they are configured, and the average interval between requests.
#include "room.h"
#include "unit.h"

#define S 1000
#define MIN (60 * S)

static const struct server adaptive = {
    .idle_timeout_ms = SERVER_IDLE_ADAPTIVE, .min_idle_timeout_ms = MIN, .max_idle_timeout_ms = 5 * MIN};

static void a_server_that_is_used_more_often_may_be_idle_for_longer(void **state)
{
    (void)state;
    static const struct {
        int64_t interval_ms, limit_ms;
    } rows[] = {
        {1, 5 * MIN},
        {179 * S, 5 * MIN},  // more than 20 an hour
        {180 * S, 3 * MIN},
        {12 * MIN, 3 * MIN},  // 5 to 20
        {12 * MIN + 1, 1 * MIN},
        {24 * 60 * MIN, 1 * MIN},  // less than 5
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(idle_limit(&adaptive, rows[i].interval_ms, true), rows[i].limit_ms);
        assert_int_equal(idle_limit(&adaptive, rows[i].interval_ms, false), rows[i].limit_ms);
    }
}

static void a_server_that_was_not_used_yet_has_the_longest_time(void **state)
{
    (void)state;
    assert_int_equal(idle_limit(&adaptive, 0, false), 5 * MIN);
    assert_int_equal(idle_limit(&adaptive, 0, true), 1 * MIN);
}

static void the_adaptive_time_stays_within_its_limits(void **state)
{
    (void)state;
    struct server server = adaptive;
    server.min_idle_timeout_ms = server.max_idle_timeout_ms = 2 * MIN;
    assert_int_equal(idle_limit(&server, 1, true), 2 * MIN);
    assert_int_equal(idle_limit(&server, 60 * MIN, true), 2 * MIN);
    server.idle_timeout_ms = 7;
    assert_int_equal(idle_limit(&server, 60 * MIN, true), 7);
}

static void a_server_that_is_eager_or_has_idle_timeout_never_is_not_ended(void **state)
{
    (void)state;
    struct server server = adaptive;
    server.idle_timeout_ms = SERVER_IDLE_NEVER;
    assert_true(idle_limit(&server, 1, true) == INT64_MAX);
    server = adaptive;
    server.eager = true;
    assert_true(idle_limit(&server, 1, true) == INT64_MAX);
}

static void a_session_that_a_reload_took_from_a_server_does_not_keep_it(void **state)
{
    (void)state;
    struct err err;
    struct gate gate = {.loop = loop_new(&err)};
    struct link used = {.source = (struct source *)&used}, other = {.source = (struct source *)&other};
    struct link *before_links[] = {&used}, *now_links[] = {&other};
    struct scope before = {.links = before_links, .link_count = 1}, now = {.links = now_links, .link_count = 1};
    struct session session = {.scope = &before, .id = "a session"};
    struct call call = {.gate = &gate, .link = &used, .scope = &before, .session = &session};
    idle_note_call(&call);
    assert_int_equal(used.usage.callers.count, 1);
    idle_session_ends(&used, &session);
    session.scope = &now;  // the call began before
    idle_note_call(&call);
    assert_int_equal(used.usage.callers.count, 0);
    now.links = before_links;
    idle_note_call(&call);
    assert_int_equal(used.usage.callers.count, 1);
    map_release(&used.usage.callers);
    loop_free(gate.loop);
}

static void each_interval_is_a_quarter_of_the_average(void **state)
{
    (void)state;
    assert_int_equal(idle_average(0, 8 * MIN), 8 * MIN);
    assert_int_equal(idle_average(8 * MIN, 8 * MIN), 8 * MIN);
    assert_int_equal(idle_average(8 * MIN, 4 * MIN), 7 * MIN);
    assert_int_equal(idle_average(4 * MIN, 8 * MIN), 5 * MIN);
}

static void the_average_follows_a_server_that_is_used_more_or_less_often(void **state)
{
    (void)state;
    int64_t average = 60 * MIN;
    int requests = 0;
    for (; idle_limit(&adaptive, average, true) < 5 * MIN; requests++)
        average = idle_average(average, MIN);
    assert_in_range(requests, 5, 20);
    for (requests = 0; idle_limit(&adaptive, average, true) > MIN; requests++)
        average = idle_average(average, 60 * MIN);
    assert_in_range(requests, 1, 5);
}

static void an_interval_of_more_than_a_day_counts_as_a_day(void **state)
{
    (void)state;
    assert_int_equal(idle_average(0, INT64_MAX), 24 * 60 * MIN);
    assert_int_equal(idle_average(4 * MIN, INT64_MAX), 4 * MIN + (24 * 60 - 4) / 4 * MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_is_used_more_often_may_be_idle_for_longer),
        cmocka_unit_test(a_server_that_was_not_used_yet_has_the_longest_time),
        cmocka_unit_test(each_interval_is_a_quarter_of_the_average),
        cmocka_unit_test(the_average_follows_a_server_that_is_used_more_or_less_often),
        cmocka_unit_test(an_interval_of_more_than_a_day_counts_as_a_day),
        cmocka_unit_test(the_adaptive_time_stays_within_its_limits),
        cmocka_unit_test(a_server_that_is_eager_or_has_idle_timeout_never_is_not_ended),
        cmocka_unit_test(a_session_that_a_reload_took_from_a_server_does_not_keep_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
