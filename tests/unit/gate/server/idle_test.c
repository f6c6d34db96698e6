// Tests how long servers may be idle, by how often they are used and how they are configured.
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

static void the_bounds_of_the_configuration_hold(void **state)
{
    (void)state;
    struct server server = adaptive;
    server.min_idle_timeout_ms = server.max_idle_timeout_ms = 2 * MIN;
    assert_int_equal(idle_limit(&server, 1, true), 2 * MIN);
    assert_int_equal(idle_limit(&server, 60 * MIN, true), 2 * MIN);
    server.idle_timeout_ms = 7;
    assert_int_equal(idle_limit(&server, 60 * MIN, true), 7);
}

static void a_server_that_is_never_idle_or_eager_is_not_ended(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_is_used_more_often_may_be_idle_for_longer),
        cmocka_unit_test(a_server_that_was_not_used_yet_has_the_longest_time),
        cmocka_unit_test(the_bounds_of_the_configuration_hold),
        cmocka_unit_test(a_server_that_is_never_idle_or_eager_is_not_ended),
        cmocka_unit_test(a_session_that_a_reload_took_from_a_server_does_not_keep_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
