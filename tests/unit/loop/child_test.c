// Tests child processes: reporting the exit, the ways to end a child, its descendants, environment and folder, and the death of
// the spawner and the keepers.
#include "base/clock.h"
#include "loop/child.h"
#include "loop/spawner.h"
#include "unit.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct run {
    struct loop *loop;
    struct child *child;
    struct loop_watch out;
    struct buf said;
    const char *wait_for;  // the loop stops when stdout contains this, or the child has exited
    char how[256];
    bool started, exited;
};

static void on_exit_told(void *arg, const char *how)
{
    struct run *run = arg;
    assert_false(run->exited);
    run->exited = true;
    snprintf(run->how, sizeof run->how, "%s", how);
    loop_stop(run->loop);
}

static void on_started(void *arg)
{
    struct run *run = arg;
    assert_false(run->started);
    run->started = true;
    loop_stop(run->loop);
}

static void on_output(struct loop_watch *watch, unsigned events)
{
    (void)events;
    struct run *run = watch->arg;
    char block[4096];
    ssize_t got = read(watch->fd, block, sizeof block);
    if (got > 0)
        buf_put(&run->said, block, (size_t)got);
    if (got == 0)
        loop_unwatch(run->loop, watch);
    if (run->wait_for && strstr(buf_text(&run->said), run->wait_for))
        loop_stop(run->loop);
}

static bool try_start(struct run *run, const struct child_spec *spec, struct err *err)
{
    *run = (struct run){0};
    run->loop = loop_new(err);
    assert_non_null(run->loop);
    struct child_spec with_start = *spec;
    with_start.on_start = on_started;
    run->child = child_start(run->loop, &with_start, on_exit_told, run, err);
    if (!run->child)
        return false;
    run->out = (struct loop_watch){.fd = child_stdout(run->child), .on_ready = on_output, .arg = run};
    assert_true(loop_watch(run->loop, &run->out, LOOP_READ, err));
    return true;
}

static void start(struct run *run, const char *command, char *const *args)
{
    struct err err = {0};
    struct child_spec spec = {.command = command, .args = args};
    if (!try_start(run, &spec, &err))
        fail_msg("%s", err.detail);
}

static void wait_for(struct run *run, const char *text)
{
    run->wait_for = text;
    while (!run->exited && !strstr(buf_text(&run->said), text))
        loop_run(run->loop);
    assert_false(run->exited);
    run->wait_for = NULL;
}

static void wait_start(struct run *run)
{
    while (!run->started && !run->exited)
        loop_run(run->loop);
    assert_true(child_started(run->child));
}

static void wait_exit(struct run *run)
{
    while (!run->exited)
        loop_run(run->loop);
}

// Reads the output of the child and its descendants; returns when all of them have ended.
static void drain(struct run *run)
{
    loop_unwatch(run->loop, &run->out);
    fcntl(run->out.fd, F_SETFL, 0);
    char block[4096];
    ssize_t got;
    while ((got = read(run->out.fd, block, sizeof block)) > 0)
        buf_put(&run->said, block, (size_t)got);
}

static void finish(struct run *run)
{
    if (run->child)
        loop_unwatch(run->loop, &run->out);
    child_free(run->child);
    loop_free(run->loop);
    buf_release(&run->said);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0);  // the spawner still runs, and no zombie is left
}

#define SH(script) ((char *const[]){"-c", (script), NULL})

static void the_exit_status_or_signal_of_a_child_is_reported(void **state)
{
    (void)state;
    static const struct {
        char *script;
        const char *how;
    } rows[] = {{"exit 0", "exit status 0"}, {"exit 7", "exit status 7"}, {"kill -9 $$", "signal 9 (Killed)"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct run run;
        start(&run, "sh", SH(rows[i].script));
        assert_int_equal(child_pid(run.child), 0);
        wait_start(&run);
        assert_true(child_pid(run.child) > 0);
        wait_exit(&run);
        assert_string_equal(run.how, rows[i].how);
        assert_int_equal(child_pid(run.child), 0);
        finish(&run);
    }
}

static void a_child_reads_its_stdin_to_the_end(void **state)
{
    (void)state;
    struct run run;
    start(&run, "cat", NULL);
    assert_int_equal(write(child_stdin(run.child), "hello\n", 6), 6);
    wait_for(&run, "hello\n");
    child_close_stdin(run.child);
    assert_int_equal(child_stdin(run.child), -1);
    wait_exit(&run);
    assert_string_equal(run.how, "exit status 0");
    finish(&run);
}

static void the_stderr_of_a_child_is_a_separate_pipe(void **state)
{
    (void)state;
    struct run run;
    char block[16] = {0};
    start(&run, "sh", SH("echo out; echo err >&2"));
    wait_exit(&run);
    drain(&run);
    assert_span(buf_span(&run.said), SPAN("out\n"), "stdout");
    assert_int_equal(read(child_stderr(run.child), block, sizeof block), 4);
    assert_string_equal(block, "err\n");
    finish(&run);
}

static void a_child_is_ended_by_closing_stdin_and_then_by_sigterm(void **state)
{
    (void)state;
    struct run run;
    start(&run, "cat", NULL);
    child_end(run.child, 60000);  // the child ends when stdin is closed, so no signal is sent
    wait_exit(&run);
    assert_string_equal(run.how, "exit status 0");
    finish(&run);

    start(&run, "sh", SH("echo ready; exec sleep 1000"));
    wait_for(&run, "ready");
    child_end(run.child, 30);
    wait_exit(&run);
    assert_string_equal(run.how, "signal 15 (Terminated)");
    finish(&run);
}

static void a_child_that_ignores_sigterm_is_killed_in_time(void **state)
{
    (void)state;
    struct run run;
    start(&run, "sh", SH("trap '' TERM; echo ready; sleep 1000; sleep 1000"));
    wait_for(&run, "ready");
    int64_t began = clock_now_ms();
    child_end(run.child, 300);
    wait_exit(&run);
    assert_string_equal(run.how, "signal 9 (Killed)");
    assert_in_range(clock_now_ms() - began, 150, 20000);
    drain(&run);  // returns only when `sleep` has ended, too
    finish(&run);
}

static void processes_left_in_the_group_of_a_child_die_with_it(void **state)
{
    (void)state;
    struct run run;
    start(&run, "sh", SH("sleep 1000 & echo ready; cat"));
    wait_for(&run, "ready");
    child_close_stdin(run.child);
    wait_exit(&run);
    drain(&run);
    finish(&run);
}

// Starts a daemon: it is in another process group and session than the child, and its parent has ended.
#define DAEMON "setsid sh -c 'sh -c \"trap : TERM HUP; echo daemon; while :; do sleep 1000; done\" &'; "

static void a_daemon_that_a_child_started_dies_with_it(void **state)
{
    (void)state;
    struct run run;
    start(&run, "sh", SH(DAEMON "cat"));
    wait_for(&run, "daemon");
    child_close_stdin(run.child);
    wait_exit(&run);
    assert_string_equal(run.how, "exit status 0");
    drain(&run);  // returns only when the daemon has ended, too
    finish(&run);

    start(&run, "sh", SH("trap '' TERM; " DAEMON "while :; do sleep 1000; done"));
    wait_for(&run, "daemon");
    child_end(run.child, 30);
    wait_exit(&run);
    assert_string_equal(run.how, "signal 9 (Killed)");
    drain(&run);
    finish(&run);
}

static pid_t parent_of(pid_t pid)
{
    char path[64], line[1024] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_int_equal(sscanf(strrchr(line, ')') + 1, " %*c %d", &parent), 1);
    return parent;
}

static void the_process_tree_of_a_killed_keeper_dies_with_it(void **state)
{
    (void)state;
    struct run run;
    start(&run, "sh", SH(DAEMON "sleep 1000"));
    wait_start(&run);
    wait_for(&run, "daemon");
    kill(parent_of(child_pid(run.child)), SIGKILL);
    wait_exit(&run);
    assert_contains(run.how, "keeper");
    drain(&run);
    finish(&run);
}

static void a_killed_spawner_is_replaced_and_its_children_keep_running(void **state)
{
    (void)state;
    struct run run, next;
    start(&run, "cat", NULL);
    wait_start(&run);
    pid_t spawner = parent_of(parent_of(child_pid(run.child)));
    assert_int_equal(parent_of(spawner), getpid());
    kill(spawner, SIGKILL);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)spawner, &info, WEXITED | WNOWAIT), 0);
    start(&next, "true", NULL);
    wait_exit(&next);
    assert_string_equal(next.how, "exit status 0");
    finish(&next);
    assert_int_equal(write(child_stdin(run.child), "hello\n", 6), 6);
    wait_for(&run, "hello\n");
    child_end(run.child, 60000);
    wait_exit(&run);
    assert_string_equal(run.how, "exit status 0");
    finish(&run);
}

static void the_descriptor_limit_of_a_child_is_the_original_one(void **state)
{
    (void)state;
    if (under_valgrind())  // valgrind sets its own limit
        skip();
    struct rlimit began, raised;
    struct run run;
    char expected[32];
    start(&run, "true", NULL);
    wait_exit(&run);
    finish(&run);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &began), 0);
    raised = began;
    raised.rlim_cur = began.rlim_cur - 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &raised), 0);
    spawner_stop();
    start(&run, "sh", SH("ulimit -Sn"));
    wait_exit(&run);
    drain(&run);
    snprintf(expected, sizeof expected, "%llu\n", (unsigned long long)began.rlim_cur);
    assert_string_equal(buf_text(&run.said), expected);
    finish(&run);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &began), 0);
}

static void every_process_tree_ends_when_the_spawner_is_stopped(void **state)
{
    (void)state;
    struct run run;
    start(&run, "sh", SH("trap '' TERM; " DAEMON "while :; do sleep 1000; done"));
    wait_for(&run, "daemon");
    int out = dup(child_stdout(run.child));
    loop_unwatch(run.loop, &run.out);
    child_free(run.child);
    run.child = NULL;
    spawner_stop();
    char byte;
    assert_int_equal(read(out, &byte, 1), 0);  // end of file, because no process has the pipe open
    close(out);
    loop_free(run.loop);
    buf_release(&run.said);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void the_process_group_of_a_running_child_is_killed_when_it_is_freed(void **state)
{
    (void)state;
    struct run run;
    start(&run, "sh", SH("trap '' TERM; sleep 1000 & echo ready; wait"));
    wait_for(&run, "ready");
    int out = dup(child_stdout(run.child));
    loop_unwatch(run.loop, &run.out);
    child_free(run.child);
    run.child = NULL;
    assert_false(run.exited);
    char byte;
    fcntl(out, F_SETFL, 0);
    assert_int_equal(read(out, &byte, 1), 0);
    close(out);
    finish(&run);
}

static void the_environment_of_a_child_is_minimal(void **state)
{
    (void)state;
    static const char *const given[] = {"UNIT_GIVEN=yes", "HOME=/given", NULL};
    static const char *const allowed[] = {"UNIT_GIVEN", "PATH",   "HOME", "USER",   "LOGNAME", "SHELL",
                                          "LANG",       "LC_ALL", "TZ",   "TMPDIR", "TERM",    NULL};
    struct run run;
    struct err err = {0};
    struct child_spec spec = {.command = "env", .env = given};
    setenv("UNIT_SECRET", "leaked", 1);
    setenv("HOME", "/ours", 1);
    setenv("TZ", "UTC", 1);
    assert_true(try_start(&run, &spec, &err));
    wait_exit(&run);
    drain(&run);
    unsigned homes = 0, zones = 0, givens = 0;
    for (char *line = buf_text(&run.said), *end; (end = strchr(line, '\n')); line = end + 1) {
        bool known = false;
        *end = '\0';
        for (size_t i = 0; allowed[i]; i++)
            known |= strncmp(line, allowed[i], strlen(allowed[i])) == 0 && line[strlen(allowed[i])] == '=';
        assert_row(known, line);
        homes += strncmp(line, "HOME=", 5) == 0;
        givens += strcmp(line, "UNIT_GIVEN=yes") == 0 || strcmp(line, "HOME=/given") == 0;
        zones += strcmp(line, "TZ=UTC") == 0;
    }
    assert_int_equal(homes, 1);
    assert_int_equal(givens, 2);
    assert_int_equal(zones, 1);
    finish(&run);
}

static void a_child_runs_in_the_given_folder(void **state)
{
    (void)state;
    struct run run;
    struct err err = {0};
    struct child_spec spec = {.command = "sh", .args = SH("pwd -P"), .cwd = "/"};
    assert_true(try_start(&run, &spec, &err));
    wait_exit(&run);
    drain(&run);
    assert_span(buf_span(&run.said), SPAN("/\n"), "cwd");
    finish(&run);
}

static void arguments_of_a_child_do_not_pass_through_a_shell(void **state)
{
    (void)state;
    struct run run;
    start(&run, "printf", (char *const[]){"%s|", "a b", "$HOME", "", "*", NULL});
    wait_exit(&run);
    drain(&run);
    assert_span(buf_span(&run.said), SPAN("a b|$HOME||*|"), "arguments");
    finish(&run);
}

static void a_child_that_cannot_start_reports_the_reason(void **state)
{
    (void)state;
    if (under_valgrind())  // posix_spawn() reports success there even if the program does not exist
        skip();
    static const struct {
        struct child_spec spec;
        const char *says[2];
    } rows[] = {
        {{.command = "no-such-command-here"}, {"\"no-such-command-here\"", "No such file"}},
        {{.command = "/"}, {"\"/\"", "denied"}},
        {{.command = "true --quiet"}, {"\"true --quiet\"", "put its arguments in \"args\""}},
        {{.command = "true", .cwd = "/no/such/directory"}, {"working directory is /no/such/directory", "No such file"}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct run run;
        struct err err = {0};
        assert_true(try_start(&run, &rows[i].spec, &err));
        wait_exit(&run);
        assert_false(run.started || child_started(run.child));
        assert_contains(run.how, "cannot start");
        assert_contains(run.how, rows[i].says[0]);
        assert_contains(run.how, rows[i].says[1]);
        finish(&run);
    }
}

static void signals_of_the_parent_are_not_inherited(void **state)
{
    (void)state;
    struct run run;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    start(&run, "sh", SH("kill -TERM $$; echo survived"));
    wait_exit(&run);
    assert_string_equal(run.how, "signal 15 (Terminated)");
    finish(&run);
    start(&run, "sh", SH("kill -PIPE $$; echo survived"));
    wait_exit(&run);
    assert_string_equal(run.how, "signal 13 (Broken pipe)");
    finish(&run);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exit_status_or_signal_of_a_child_is_reported),
        cmocka_unit_test(a_child_reads_its_stdin_to_the_end),
        cmocka_unit_test(the_stderr_of_a_child_is_a_separate_pipe),
        cmocka_unit_test(a_child_is_ended_by_closing_stdin_and_then_by_sigterm),
        cmocka_unit_test(a_child_that_ignores_sigterm_is_killed_in_time),
        cmocka_unit_test(processes_left_in_the_group_of_a_child_die_with_it),
        cmocka_unit_test(a_daemon_that_a_child_started_dies_with_it),
        cmocka_unit_test(the_process_tree_of_a_killed_keeper_dies_with_it),
        cmocka_unit_test(a_killed_spawner_is_replaced_and_its_children_keep_running),
        cmocka_unit_test(the_descriptor_limit_of_a_child_is_the_original_one),
        cmocka_unit_test(every_process_tree_ends_when_the_spawner_is_stopped),
        cmocka_unit_test(the_process_group_of_a_running_child_is_killed_when_it_is_freed),
        cmocka_unit_test(the_environment_of_a_child_is_minimal),
        cmocka_unit_test(a_child_runs_in_the_given_folder),
        cmocka_unit_test(arguments_of_a_child_do_not_pass_through_a_shell),
        cmocka_unit_test(a_child_that_cannot_start_reports_the_reason),
        cmocka_unit_test(signals_of_the_parent_are_not_inherited),
    };
    alarm(60);  // a child that does not end fails the test
    return cmocka_run_group_tests(tests, NULL, NULL);
}
