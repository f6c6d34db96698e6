// Owns child processes as the loop sees them: the order to start one, its pipes, its exit, and how it is ended.
//
// starting -> running -> (child_end) stdin closed -> SIGTERM to the group -> SIGKILL to the tree -> exited
//
// A keeper that does not report after SIGKILL was ordered is not waited for: it ends the tree when it can.
//
// A keeper (keeper.c) is the parent of each child. It reports over the control socket and obeys the signals sent there.
// When this process closes the socket or ends, the keeper kills the child with all its descendants.
#include "loop/child.h"
#include "base/mem.h"
#include "keeper.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEEPER_MS 1000  // for its last report, which takes at most TREE_MS

struct child {
    struct loop *loop;
    char *command, *cwd;  // for the message if it cannot be started
    bool started;
    pid_t pid;
    int pipes[3];
    struct loop_watch control;  // to its keeper; fd -1: the keeper has exited
    struct loop_timer firmer;
    int64_t patience_ms;
    int sent;
    void (*on_start)(void *arg);
    child_exit_fn *on_exit;
    void *arg;
};

// ---- the order ------------------------------------------------------------------------------

// Variables that every child gets, if the gateway has them.
static const char *const basics[] = {"PATH",   "HOME", "USER",   "LOGNAME", "SHELL", "LANG",
                                     "LC_ALL", "TZ",   "TMPDIR", "TERM",    NULL};

static char **make_env(const char *const *extra)
{
    size_t count = 0, n = sizeof basics / sizeof *basics;
    for (const char *const *e = extra; e && *e; e++)
        n++;
    char **env = mem_alloc((n + 1) * sizeof *env);
    for (const char *const *e = extra; e && *e; e++)
        env[count++] = mem_string(*e);
    size_t own = count;
    for (const char *const *name = basics; *name; name++) {
        const char *value = getenv(*name);
        size_t len = strlen(*name);
        bool given = false;
        for (size_t i = 0; i < own; i++)
            given |= strncmp(env[i], *name, len) == 0 && env[i][len] == '=';
        if (!value || given)
            continue;
        size_t size = len + strlen(value) + 2;
        env[count] = mem_alloc(size);
        snprintf(env[count++], size, "%s=%s", *name, value);
    }
    return env;
}

static void free_env(char **env)
{
    for (char **e = env; *e; e++) {
        explicit_bzero(*e, strlen(*e));
        free(*e);
    }
    free(env);
}

static char **make_argv(const struct child_spec *spec)
{
    size_t n = 0;
    while (spec->args && spec->args[n])
        n++;
    char **argv = mem_alloc((n + 2) * sizeof *argv);
    argv[0] = (char *)(uintptr_t)spec->command;
    if (n)
        memcpy(argv + 1, spec->args, n * sizeof *argv);
    return argv;
}

static size_t size_of(char *const *vector)
{
    size_t size = sizeof *vector;
    for (; *vector; vector++)
        size += sizeof *vector + strlen(*vector) + 1;
    return size;
}

static size_t put_text(char *base, size_t *end, const char *text)
{
    size_t at = *end;
    *end += strlen(text) + 1;
    memcpy(base + at, text, *end - at);
    return at;
}

// Writes the slots at `slot`, which end with the NULL that is there already, and the strings at `end`. Returns the slot
// after them.
static size_t put_vector(char *base, size_t slot, size_t *end, char *const *vector)
{
    for (; *vector; vector++, slot += sizeof(size_t)) {
        size_t at = put_text(base, end, *vector);
        memcpy(base + slot, &at, sizeof at);
    }
    return slot + sizeof(size_t);
}

static size_t count_slots(char *const *vector)
{
    size_t count = 1;
    while (*vector++)
        count++;
    return count;
}

static void fill_order(char *base, const struct child_spec *spec, char *const *argv, char *const *env)
{
    struct keeper_order *order = (struct keeper_order *)(void *)base;
    const char *path = getenv("PATH");
    size_t end = sizeof *order + (count_slots(argv) + count_slots(env)) * sizeof(size_t);
    order->argv = sizeof *order;
    order->env = put_vector(base, order->argv, &end, argv);
    put_vector(base, order->env, &end, env);
    order->path = path ? put_text(base, &end, path) : 0;
    order->cwd = spec->cwd ? put_text(base, &end, spec->cwd) : 0;
}

// Returns a descriptor, or -1 with errno set. The order is written in place, since the environment holds secrets.
static int write_order(const struct child_spec *spec)
{
    char **argv = make_argv(spec), **env = make_env(spec->env);
    const char *path = getenv("PATH");
    size_t size = sizeof(struct keeper_order) + size_of(argv) + size_of(env) + (path ? strlen(path) + 1 : 0) +
                  (spec->cwd ? strlen(spec->cwd) + 1 : 0);
    int fd = memfd_create("order", MFD_CLOEXEC);
    char *base = fd >= 0 && ftruncate(fd, (off_t)size) == 0
                     ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    int failure = errno;
    if (base != MAP_FAILED) {
        fill_order(base, spec, argv, env);
        munmap(base, size);
    } else if (fd >= 0) {
        close(fd);
        fd = -1;
    }
    free(argv);
    free_env(env);
    errno = failure;
    return fd;
}

// ---- the child ------------------------------------------------------------------------------

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static void describe(int status, char *out, size_t size)
{
    if (WIFEXITED(status))
        snprintf(out, size, "exit status %d", WEXITSTATUS(status));
    else
        snprintf(out, size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

static void send_signal(struct child *child, int signal)
{
    unsigned char byte = (unsigned char)signal;
    child->sent = signal;
    (void)send(child->control.fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void let_go(struct child *child)
{
    loop_timer_stop(child->loop, &child->firmer);
    loop_unwatch(child->loop, &child->control);
    if (child->control.fd >= 0)
        close(child->control.fd);
    child->control.fd = -1;
    child->pid = 0;
}

static void exited(struct child *child, const char *how)
{
    let_go(child);
    child->on_exit(child->arg, how);
}

static void not_started(struct child *child, const char *why)
{
    char how[512];
    const char *hint = strpbrk(child->command, " \t") ? "; put its arguments in \"args\"" : "";
    snprintf(how, sizeof how, "cannot start \"%s\": %s%s%s%s", child->command, why, hint,
             child->cwd ? "; its working directory is " : "", child->cwd ? child->cwd : "");
    exited(child, how);
}

static void on_control(struct loop_watch *watch, unsigned events)
{
    struct child *child = watch->arg;
    struct keeper_report report = {0};
    char how[64];
    (void)events;
    ssize_t got = recv(watch->fd, &report, sizeof report, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    switch (report.event) {
    case KEEPER_STARTED:
        child->started = true;
        child->pid = report.value;
        if (child->on_start)
            child->on_start(child->arg);
        break;
    case KEEPER_FAILED: not_started(child, strerror(report.value)); break;
    case KEEPER_EXITED:
        describe(report.value, how, sizeof how);
        exited(child, how);
        break;
    case KEEPER_NOTHING:  // end of file
        if (child->started)
            exited(child, "its keeper process was killed");
        else
            not_started(child, "the spawner process was killed");
        break;
    }
}

static void be_firmer(struct loop_timer *timer)
{
    struct child *child = timer->arg;
    if (child->sent == SIGKILL) {
        exited(child, "its keeper process does not answer");
        return;
    }
    send_signal(child, child->sent == SIGTERM ? SIGKILL : SIGTERM);
    loop_timer_set(child->loop, timer, child->sent == SIGTERM ? child->patience_ms : KEEPER_MS);
}

static bool open_ends(int ours[KEEPER_FDS], int theirs[KEEPER_FDS], const struct child_spec *spec)
{
    int in[2], pipes[2][2], control[2];
    if (pipe2(in, O_CLOEXEC) != 0)
        return false;
    theirs[KEEPER_STDIN] = in[0];
    ours[KEEPER_STDIN] = in[1];
    for (int i = 0; i < 2; i++) {
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            return false;
        ours[KEEPER_STDOUT + i] = pipes[i][0];
        theirs[KEEPER_STDOUT + i] = pipes[i][1];
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) != 0)
        return false;
    ours[KEEPER_CONTROL] = control[0];
    theirs[KEEPER_CONTROL] = control[1];
    return (theirs[KEEPER_ORDER] = write_order(spec)) >= 0;
}

static struct child *child_new(struct loop *loop, const struct child_spec *spec, const int ours[KEEPER_FDS])
{
    struct child *child = mem_new(struct child);
    child->loop = loop;
    child->command = mem_string(spec->command);
    child->cwd = mem_string(spec->cwd);
    child->on_start = spec->on_start;
    child->control =
        (struct loop_watch){.fd = ours[KEEPER_CONTROL], .on_ready = on_control, .arg = child, .name = "server process"};
    child->firmer = (struct loop_timer){.on_due = be_firmer, .arg = child, .name = "server process"};
    for (int i = 0; i < 3; i++) {
        child->pipes[i] = ours[KEEPER_STDIN + i];
        fcntl(child->pipes[i], F_SETFL, O_NONBLOCK);
    }
    fcntl(child->pipes[0], F_SETPIPE_SZ, 1 << 20);  // fewer wake-ups for large messages; fine if refused
    fcntl(child->pipes[1], F_SETPIPE_SZ, 1 << 20);
    return child;
}

struct child *child_start(struct loop *loop, const struct child_spec *spec, child_exit_fn *on_exit, void *arg,
                          struct err *err)
{
    int ours[KEEPER_FDS] = {-1, -1, -1, -1, -1}, theirs[KEEPER_FDS] = {-1, -1, -1, -1, -1};
    bool ok = open_ends(ours, theirs, spec) && spawner_send(theirs);
    int failure = errno;
    close_all(theirs, KEEPER_FDS);
    if (!ok) {
        (void)err_set(err, ERR_UNAVAILABLE, "cannot start \"%s\": %s", spec->command, strerror(failure));
        close_all(ours, KEEPER_FDS);
        return NULL;
    }
    struct child *child = child_new(loop, spec, ours);
    child->on_exit = on_exit;
    child->arg = arg;
    if (!loop_watch(loop, &child->control, LOOP_READ, err)) {
        child_free(child);
        return NULL;
    }
    return child;
}

bool child_started(const struct child *child) { return child->started; }
pid_t child_pid(const struct child *child) { return child->pid; }
int child_stdin(const struct child *child) { return child->pipes[0]; }
int child_stdout(const struct child *child) { return child->pipes[1]; }
int child_stderr(const struct child *child) { return child->pipes[2]; }

void child_close_stdin(struct child *child)
{
    if (child->pipes[0] >= 0)
        close(child->pipes[0]);
    child->pipes[0] = -1;
}

void child_end(struct child *child, int64_t within_ms)
{
    if (child->control.fd < 0)
        return;
    child_close_stdin(child);
    child->patience_ms = within_ms / 3;
    loop_timer_set(child->loop, &child->firmer, child->patience_ms);
}

void child_free(struct child *child)
{
    if (!child)
        return;
    let_go(child);
    close_all(child->pipes, 3);
    free(child->command);
    free(child->cwd);
    free(child);
}

// The environment without the gateway's own variables, since the key of the vault may be in them. The strings are not
// copies.
static char **foreign_env(void)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **env = mem_alloc((count + 1) * sizeof *env);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "POSTERN_", 8) != 0)
            env[kept++] = environ[i];
    return env;
}

bool child_launch(const char *command, char *const *argv, struct err *err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    pid_t pid;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_addopen(&files, i, "/dev/null", O_RDWR, 0);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char **env = foreign_env();
    int failure = posix_spawnp(&pid, command, &files, &attributes, argv, env);
    free(env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return !failure || err_set(err, ERR_SYSTEM, "cannot start %s: %s", command, strerror(failure));
}
