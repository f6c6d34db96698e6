// Tests the counts of servers, the p99 of durations, the last error, and that removed servers are forgotten.
#include "gate/session/server_runtime.h"
#include "room.h"
#include "unit.h"

static void the_p99_is_at_most_a_quarter_too_large(void **state)
{
    (void)state;
    for (int64_t us = 0; us < 4000000000; us += us / 3 + 1) {
        struct server_runtime runtime = {0};
        server_runtime_count(&runtime, us, false);
        int64_t p99 = server_runtime_p99_us(&runtime);
        assert_in_range(p99, us, us + us / 4);
    }
}

static void the_p99_leaves_out_one_call_in_a_hundred(void **state)
{
    (void)state;
    struct server_runtime runtime = {0};
    assert_int_equal(server_runtime_p99_us(&runtime), -1);
    for (int i = 0; i < 198; i++)
        server_runtime_count(&runtime, 1000, false);
    server_runtime_count(&runtime, 900000, true);
    server_runtime_count(&runtime, 900000, true);
    assert_in_range(server_runtime_p99_us(&runtime), 1000, 1250);
    server_runtime_count(&runtime, 900000, false);
    assert_in_range(server_runtime_p99_us(&runtime), 900000, 1125000);
    assert_int_equal(runtime.calls, 201);
    assert_int_equal(runtime.failed, 2);
}

static void old_calls_count_less_and_less(void **state)
{
    (void)state;
    struct server_runtime runtime = {0};
    for (int i = 0; i < 10000; i++)
        server_runtime_count(&runtime, 5000000, false);
    for (int i = 0; i < 60000; i++)
        server_runtime_count(&runtime, 1000, false);
    assert_in_range(server_runtime_p99_us(&runtime), 1000, 1250);
    assert_int_equal(runtime.calls, 70000);
}

static void durations_out_of_range_are_counted(void **state)
{
    (void)state;
    struct server_runtime runtime = {0};
    server_runtime_count(&runtime, -5, false);
    assert_int_equal(server_runtime_p99_us(&runtime), 0);
    server_runtime_count(&runtime, INT64_MAX, false);
    assert_true(server_runtime_p99_us(&runtime) > 3600LL * 1000 * 1000);
}

static void servers_that_the_tenant_does_not_have_are_forgotten(void **state)
{
    (void)state;
    struct server servers[] = {{.name = "a"}};
    struct option_items items = {servers, 1};
    struct tenant tenant = {.servers = &items};
    struct server_runtime *kept = server_runtime_get(&tenant, "a");
    server_runtime_count(server_runtime_get(&tenant, "gone"), 1, false);
    server_runtime_forget(&tenant, false);
    assert_ptr_equal(server_runtime_find(&tenant, "a"), kept);
    assert_null(server_runtime_find(&tenant, "gone"));
    server_runtime_forget(&tenant, true);
    assert_null(server_runtime_find(&tenant, "a"));
}

static void an_error_is_kept_as_utf8_of_bounded_length(void **state)
{
    (void)state;
    char text[600];
    struct server_runtime runtime = {0};
    memset(text, 'x', sizeof text);
    memcpy(text + 254, "\xC3\xA9\xFF", 3);
    text[sizeof text - 1] = '\0';
    server_runtime_note_error(&runtime, text);
    assert_int_equal(strlen(runtime.error), 254);
    assert_true(*runtime.error_at);
    server_runtime_note_error(&runtime, "short \xFF");
    assert_string_equal(runtime.error, "short ?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_p99_is_at_most_a_quarter_too_large),
        cmocka_unit_test(the_p99_leaves_out_one_call_in_a_hundred),
        cmocka_unit_test(old_calls_count_less_and_less),
        cmocka_unit_test(durations_out_of_range_are_counted),
        cmocka_unit_test(servers_that_the_tenant_does_not_have_are_forgotten),
        cmocka_unit_test(an_error_is_kept_as_utf8_of_bounded_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
