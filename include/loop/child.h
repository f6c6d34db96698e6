// A child process in its own process group, with three pipes. It is asked to exit before it is killed with all its
// descendants.
#ifndef LOOP_CHILD_H
#define LOOP_CHILD_H

#include "base/err.h"
#include "loop/loop.h"
#include <sys/types.h>

struct child_spec {
    const char *command;     // looked up in PATH
    char *const *args;       // without the command itself; NULL at the end, or NULL
    const char *const *env;  // "NAME=value", NULL at the end: added to the basic variables, the only ones it inherits
    const char *cwd;         // or NULL
    void (*on_start)(void *arg);  // the program runs and child_pid() is known; or NULL
};

struct child;

// Called once, when the child and its descendants have ended. `how` is for the log: "exit status 1", "signal 9
// (Killed)", or the reason why the child could not be started, if child_started() is false.
typedef void child_exit_fn(void *arg, const char *how);

struct child *child_start(struct loop *loop, const struct child_spec *spec, child_exit_fn *on_exit, void *arg,
                          struct err *err) MUST_CHECK;
bool child_started(const struct child *child);  // also after its exit
pid_t child_pid(const struct child *child);     // 0 before it has started and after its exit
int child_stdin(const struct child *child);     // non-blocking; -1 once closed
int child_stdout(const struct child *child);    // non-blocking
int child_stderr(const struct child *child);    // non-blocking

void child_close_stdin(struct child *child);
// Starts a detached program, such as a browser: in a session of its own, without a terminal, with the environment
// except POSTERN_*. It is neither watched nor ended.
bool child_launch(const char *command, char *const *argv, struct err *err) MUST_CHECK;
// Closes stdin, waits a third of the time, sends SIGTERM to the group, waits a third, and kills the group and all
// descendants.
void child_end(struct child *child, int64_t within_ms);
// Closes the pipes that are left. If on_exit has not been called, it is not called any more, and the child and its
// descendants are killed.
void child_free(struct child *child);

#endif
