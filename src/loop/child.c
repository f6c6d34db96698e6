// Owns child processes: spawning, exit by pidfd, and the way a child is ended.
//
// running -> (child_end) stdin closed -> SIGTERM to the group -> SIGKILL to the group -> exited.
// When the leader has exited, whatever is left of its group is killed: no orphans.
#include "loop/child.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 50
#define BURY_MS 500

struct child {
    struct loop *loop;
    pid_t pid;
    int pipes[3];
    struct loop_watch exited;  // pidfd
    struct loop_timer look;    // where there is no pidfd (old kernels, valgrind)
    struct loop_timer firmer;
    int64_t patience_ms;
    int sent;
    child_exit_fn *on_exit;
    void *arg;
};

// What every child gets, if we have it.
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

static int spawn(const struct child_spec *spec, const int theirs[3], pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&files, theirs[i], i);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);  // libraries open descriptors that would be inherited
    if (spec->cwd)
        posix_spawn_file_actions_addchdir_np(&files, spec->cwd);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char **argv = make_argv(spec), **env = make_env(spec->env);
    int failure = posix_spawnp(pid, spec->command, &files, &attributes, argv, env);
    free(argv);
    free_env(env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failure;
}

static void close_pipes(int pipes[3])
{
    for (int i = 0; i < 3; i++)
        if (pipes[i] >= 0) {
            close(pipes[i]);
            pipes[i] = -1;
        }
}

static void describe(const siginfo_t *info, char *out, size_t size)
{
    if (info->si_code == CLD_EXITED)
        snprintf(out, size, "exit status %d", info->si_status);
    else
        snprintf(out, size, "signal %d (%s)", info->si_status, strsignal(info->si_status));
}

static void kill_group(struct child *child, int signal)
{
    child->sent = signal;
    kill(-child->pid, signal);
}

// The leader has exited and is a zombie still, so the group id is still ours.
static void collect(struct child *child)
{
    siginfo_t info = {0};
    char how[64];
    kill_group(child, SIGKILL);
    waitid(P_PID, (id_t)child->pid, &info, WEXITED);
    describe(&info, how, sizeof how);
    loop_timer_stop(child->loop, &child->firmer);
    loop_timer_stop(child->loop, &child->look);
    loop_unwatch(child->loop, &child->exited);
    if (child->exited.fd >= 0)
        close(child->exited.fd);
    child->exited.fd = -1;
    child->pid = 0;
    child->on_exit(child->arg, how);
}

static void on_exited(struct loop_watch *watch, unsigned events)
{
    (void)events;
    collect(watch->arg);
}

static void on_look(struct loop_timer *timer)
{
    struct child *child = timer->arg;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0)
        loop_timer_set(child->loop, timer, LOOK_MS);
    else
        collect(child);
}

static void be_firmer(struct loop_timer *timer)
{
    struct child *child = timer->arg;
    kill_group(child, child->sent == SIGTERM ? SIGKILL : SIGTERM);
    if (child->sent == SIGTERM)
        loop_timer_set(child->loop, timer, child->patience_ms);
}

struct child *child_start(struct loop *loop, const struct child_spec *spec, child_exit_fn *on_exit, void *arg,
                          struct err *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, errors[2] = {-1, -1};
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(errors, O_CLOEXEC) < 0) {
        (void)err_set(err, ERR_SYSTEM, "pipe: %s", strerror(errno));
        close_pipes((int[3]){in[0], out[0], -1});
        close_pipes((int[3]){in[1], out[1], -1});
        return NULL;
    }
    pid_t pid = 0;
    int theirs[3] = {in[0], out[1], errors[1]}, ours[3] = {in[1], out[0], errors[0]};
    int failure = spawn(spec, theirs, &pid);
    close_pipes(theirs);
    if (failure) {
        (void)err_set(err, ERR_UNAVAILABLE, "cannot start \"%s\": %s%s%s", spec->command, strerror(failure),
                      spec->cwd ? "; its cwd is " : "", spec->cwd ? spec->cwd : "");
        close_pipes(ours);
        return NULL;
    }
    struct child *child = mem_new(struct child);
    *child = (struct child){.loop = loop, .pid = pid, .on_exit = on_exit, .arg = arg};
    child->exited = (struct loop_watch){.fd = pidfd_open(pid, 0), .on_ready = on_exited, .arg = child};
    child->firmer = (struct loop_timer){.on_due = be_firmer, .arg = child};
    child->look = (struct loop_timer){.on_due = on_look, .arg = child};
    for (int i = 0; i < 3; i++) {
        child->pipes[i] = ours[i];
        fcntl(ours[i], F_SETFL, O_NONBLOCK);
    }
    fcntl(ours[0], F_SETPIPE_SZ, 1 << 20);  // fewer wake-ups for large messages; fine if refused
    fcntl(ours[1], F_SETPIPE_SZ, 1 << 20);
    if (child->exited.fd < 0) {
        loop_timer_set(loop, &child->look, LOOK_MS);
    } else if (!loop_watch(loop, &child->exited, LOOP_READ, err)) {
        child_free(child);
        return NULL;
    }
    return child;
}

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
    child_close_stdin(child);
    if (!child->pid)
        return;
    child->patience_ms = within_ms / 3;
    loop_timer_set(child->loop, &child->firmer, child->patience_ms);
}

// A killed child is gone in a moment, unless the kernel holds it (a file system that does not answer): nobody waits for
// that, and it is a zombie when it goes at last.
static void bury(struct child *child)
{
    struct pollfd exited = {.fd = child->exited.fd, .events = POLLIN};
    kill_group(child, SIGKILL);
    for (int ms = 0; ms < BURY_MS && waitpid(child->pid, NULL, WNOHANG) == 0; ms++)
        poll(&exited, 1, 1);
}

void child_free(struct child *child)
{
    if (!child)
        return;
    if (child->pid)
        bury(child);
    loop_timer_stop(child->loop, &child->firmer);
    loop_timer_stop(child->loop, &child->look);
    loop_unwatch(child->loop, &child->exited);
    if (child->exited.fd >= 0)
        close(child->exited.fd);
    close_pipes(child->pipes);
    free(child);
}

// Our own environment without what is ours: the key of the vault may be in it. The strings are not copies.
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
