// Tests the state table of the login flow: it is complete and connected, and no transition happens that it does not list.
#include "flow_state.h"
#include "unit.h"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static sigjmp_buf aborted;

static void on_abort(int signal)
{
    (void)signal;
    siglongjmp(aborted, 1);
}

static bool lists(enum flow_state from, enum flow_state to) { return flow_rows[from].next & 1U << to; }

static void every_state_has_a_unique_name_and_a_start_function(void **state)
{
    (void)state;
    for (int i = 0; i < FLOW_STATES; i++) {
        assert_non_null(flow_rows[i].name);
        assert_row(flow_rows[i].start, flow_rows[i].name);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(flow_rows[i].name, flow_rows[k].name);
    }
}

static void every_state_that_waits_for_a_reply_has_a_reply_function(void **state)
{
    (void)state;
    for (int i = 0; i < FLOW_STATES; i++) {
        bool quiet = i == FLOW_AUTHORIZING ||
                     i == FLOW_ENDED;  // the return of the browser arrives through login_flow_callback()
        assert_row(quiet == !flow_rows[i].on_reply, flow_rows[i].name);
    }
}

static void every_state_is_reachable_and_leads_to_the_end(void **state)
{
    (void)state;
    uint32_t reached = 1U << FLOW_NEW, before = 0;
    while (reached != before) {
        before = reached;
        for (int i = 0; i < FLOW_STATES; i++)
            if (reached & 1U << i)
                reached |= flow_rows[i].next;
    }
    for (int i = 0; i < FLOW_STATES; i++) {
        assert_row(reached & 1U << i, flow_rows[i].name);
        assert_row(lists((enum flow_state)i, FLOW_ENDED) == (i != FLOW_ENDED), flow_rows[i].name);
        assert_row(flow_rows[i].next >> FLOW_STATES == 0, flow_rows[i].name);
    }
}

static void a_login_does_not_return_to_its_start_or_continue_after_its_end(void **state)
{
    (void)state;
    for (int i = 0; i < FLOW_STATES; i++)
        assert_row(!lists((enum flow_state)i, FLOW_NEW), flow_rows[i].name);
    assert_int_equal(flow_rows[FLOW_ENDED].next, 0);
}

static void set_state_accepts_listed_transitions_and_aborts_on_others(void **state)
{
    (void)state;
    static volatile int from, to, refused, taken;
    struct sigaction before, handler = {.sa_handler = on_abort};
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC), shown = dup(STDERR_FILENO);
    sigaction(SIGABRT, &handler, &before);
    dup2(quiet, STDERR_FILENO);
    for (from = 0; from < FLOW_STATES; from++)
        for (to = 0; to <= FLOW_STATES; to++) {
            static struct login_flow flow;
            flow.state = (enum flow_state)from;
            if (sigsetjmp(aborted, 1)) {
                refused += to == FLOW_STATES || !lists((enum flow_state)from, (enum flow_state)to);
                assert_int_equal(flow.state, from);
                continue;
            }
            flow_set_state(&flow, (enum flow_state)to);
            taken += lists((enum flow_state)from, (enum flow_state)to);
            assert_int_equal(flow.state, to);
        }
    dup2(shown, STDERR_FILENO);
    sigaction(SIGABRT, &before, NULL);
    close(quiet);
    close(shown);
    assert_int_equal(refused + taken, FLOW_STATES * (FLOW_STATES + 1));
    assert_true(refused > taken && taken > FLOW_STATES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_a_unique_name_and_a_start_function),
        cmocka_unit_test(every_state_that_waits_for_a_reply_has_a_reply_function),
        cmocka_unit_test(every_state_is_reachable_and_leads_to_the_end),
        cmocka_unit_test(a_login_does_not_return_to_its_start_or_continue_after_its_end),
        cmocka_unit_test(set_state_accepts_listed_transitions_and_aborts_on_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
