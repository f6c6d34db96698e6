// A child process in its own process group, with three pipes, ended politely and then firmly, with all its descendants.
#ifndef LOOP_CHILD_H
#define LOOP_CHILD_H

#include "base/err.h"
#include "loop/loop.h"
#include <sys/types.h>

struct child_spec {
    const char *command;          // looked up in PATH
    char *const *args;            // without the command itself; NULL at the end, or NULL
    const char *const *env;       // "NAME=value", NULL at the end: all the child gets beside the basics
    const char *cwd;              // or NULL
    void (*on_start)(void *arg);  // the program runs and child_pid() is known; or NULL
};

struct child;

// Comes once, when nothing of the child is left. How it ended, in words for the log: "exit status 1", "signal 9
// (Killed)"; or why it could not be started, if child_started() is false.
typedef void child_exit_fn(void *arg, const char *how);

struct child *child_start(struct loop *loop, const struct child_spec *spec, child_exit_fn *on_exit, void *arg,
                          struct err *err) MUST_CHECK;
bool child_started(const struct child *child);  // also after its exit
pid_t child_pid(const struct child *child);     // 0 before it has started and after its exit
int child_stdin(const struct child *child);     // non-blocking; -1 once closed
int child_stdout(const struct child *child);    // non-blocking
int child_stderr(const struct child *child);    // non-blocking

void child_close_stdin(struct child *child);
// Starts a program that is nobody's child: in a session of its own, with our environment but POSTERN_*, without a
// terminal. It is not watched and not ended: a browser.
bool child_launch(const char *command, char *const *argv, struct err *err) MUST_CHECK;
// Closes stdin, waits a third of the time, SIGTERM to the group, waits a third, SIGKILL to it and all its descendants.
void child_end(struct child *child, int64_t within_ms);
// Closes the pipes that are left. Before on_exit, the child and its descendants are killed; on_exit does not come then.
void child_free(struct child *child);

#endif
