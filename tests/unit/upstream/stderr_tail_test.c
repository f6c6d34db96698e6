// Tests the kept stderr of a server: whole lines, a bounded size, and the lines of the last process alone.
#include "stderr_tail.h"
#include "unit.h"

static void the_last_lines_are_those_of_the_last_process(void **state)
{
    (void)state;
    struct stderr_tail tail = {0};
    assert_int_equal(stderr_tail_last(&tail, 10).len, 0);
    stderr_tail_add(&tail, SPAN("old"));
    stderr_tail_begin(&tail);
    assert_int_equal(stderr_tail_last(&tail, 10).len, 0);
    stderr_tail_add(&tail, SPAN("one"));
    stderr_tail_add(&tail, SPAN(""));
    stderr_tail_add(&tail, SPAN("three"));
    assert_true(span_is(stderr_tail_last(&tail, 10), "one\n\nthree"));
    assert_true(span_is(stderr_tail_last(&tail, 2), "\nthree"));
    assert_true(span_is(stderr_tail_last(&tail, 1), "three"));
    assert_true(span_is(stderr_tail_last(&tail, 0), ""));
    assert_true(span_is(stderr_tail_all(&tail), "old\none\n\nthree\n"));
    stderr_tail_release(&tail);
}

static void the_oldest_lines_are_dropped_whole(void **state)
{
    (void)state;
    struct stderr_tail tail = {0};
    char line[600];
    for (int i = 0; i < 5000; i++) {
        size_t len = (size_t)snprintf(line, sizeof line, "line %d %.*s", i, i * 7 % 500,
                                      "........................................................................");
        if (i == 4999)
            stderr_tail_begin(&tail);
        stderr_tail_add(&tail, span_make(line, len));
        struct span all = stderr_tail_all(&tail);
        assert_true(all.len <= STDERR_TAIL_BYTES);
        assert_true(span_starts(all, "line "));
        assert_int_equal(all.at[all.len - 1], '\n');
    }
    assert_true(stderr_tail_all(&tail).len > STDERR_TAIL_BYTES / 2);
    assert_true(span_starts(stderr_tail_last(&tail, 50), "line 4999"));
    stderr_tail_release(&tail);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_lines_are_those_of_the_last_process),
        cmocka_unit_test(the_oldest_lines_are_dropped_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
