// Tests CHECK(): if the condition does not hold, the process aborts, also in a release, and standard error names the place.
//
// tests/CMakeLists.txt builds this file twice: like every unit test, and with check.c compiled as in a release
// (base/check-release).
#ifndef NDEBUG
#define NDEBUG
#endif
#include "base/check.h"
#include "base/list.h"
#include "unit.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

// Runs a function in a child, which must abort; `text` gets the standard error of the child.
static void run_to_the_end(void (*run)(void), char text[512])
{
    int pipes[2], status;
    memset(text, 0, 512);
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], STDERR_FILENO);
        run();
        _exit(0);
    }
    close(pipes[1]);
    assert_true(read(pipes[0], text, 511) > 0);
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void break_a_condition(void)
{
    volatile int one = 1;
    CHECK(one == 1);
    CHECK(one == 2);
}

static void a_failed_check_writes_its_condition_to_stderr_and_aborts(void **state)
{
    (void)state;
    char text[512];
    run_to_the_end(break_a_condition, text);
    assert_contains(text, "postern: invariant does not hold: one == 2 (tests/unit/base/check_test.c:");
}

static void put_a_node_into_two_lists(void)
{
    struct list one, other, node = {0};
    list_init(&one);
    list_init(&other);
    list_append(&one, &node);
    list_append(&other, &node);
}

static void a_node_that_is_put_into_two_lists_aborts_the_process(void **state)
{
    (void)state;
    char text[512];
    run_to_the_end(put_a_node_into_two_lists, text);
    assert_contains(text, "invariant does not hold: !list_linked(node)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_check_writes_its_condition_to_stderr_and_aborts),
        cmocka_unit_test(a_node_that_is_put_into_two_lists_aborts_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
