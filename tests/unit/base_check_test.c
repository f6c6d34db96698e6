// Tests invariants: one that does not hold ends the process, in a release too, and the log says where.
#define NDEBUG
#include "base/check.h"
#include "unit.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_condition_that_does_not_hold_is_logged_and_aborts(void **state)
{
    (void)state;
    int pipes[2], status;
    char text[512] = "";
    assert_int_equal(pipe(pipes), 0);
    CHECK(pipes[0] >= 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], STDERR_FILENO);
        CHECK(pipes[0] < 0);
        _exit(0);
    }
    close(pipes[1]);
    assert_true(read(pipes[0], text, sizeof text - 1) > 0);
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "invariant does not hold condition=\"pipes[0] < 0\" file="));
    assert_non_null(strstr(text, "base_check_test.c line="));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_condition_that_does_not_hold_is_logged_and_aborts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
