// Owns the keeper: the small process above one server that ends the server's whole process tree.
//
//   gateway ── spawner ── keeper ── server ── descendants of the server
//      └───── control socket ──┘
//
// A keeper is a subreaper: a descendant whose parent has ended becomes the keeper's child, in any session or process
// group. So killing children until the keeper has no more kills the whole tree. A keeper does that when the server has
// exited, when SIGKILL is ordered, and when the control socket ends, which happens however the gateway ended.
//
// A keeper is forked by the spawner, blocks all signals, logs nothing and has no descriptors but the two it waits on.
// Guarded by tests/unit/loop/child_test.c and tests/e2e/servers/children.test.mjs.
#include "keeper.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// A process blocked in the kernel (by a file system that does not answer) does not die yet: the exit is reported after
// this time.
#define TREE_MS 500
#define SLOW_MS 50  // between two checks from then on

struct keeper {
    int control, signals;
    pid_t leader;  // the server, which leads a process group
    int status;    // as returned by waitpid()
};

void keeper_tell(int control, enum keeper_event event, int value)
{
    struct keeper_report report = {event, value};
    (void)send(control, &report, sizeof report, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// ---- starting the server --------------------------------------------------------------------

static char **relocate(char *base, size_t offset)
{
    char **vector = (char **)(void *)(base + offset);
    for (char **slot = vector; *slot; slot++)
        *slot = base + (uintptr_t)*slot;
    return vector;
}

static int spawn(char *base, const int fds[KEEPER_FDS], pid_t *pid)
{
    const struct keeper_order *order = (const struct keeper_order *)(const void *)base;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&files, fds[KEEPER_STDIN + i], i);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    if (order->cwd)
        posix_spawn_file_actions_addchdir_np(&files, base + order->cwd);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (order->path)
        setenv("PATH", base + order->path, 1);
    else
        unsetenv("PATH");
    char **argv = relocate(base, order->argv), **env = relocate(base, order->env);
    int failure = posix_spawnp(pid, argv[0], &files, &attributes, argv, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failure;
}

static int start(const int fds[KEEPER_FDS], pid_t *pid)
{
    struct stat file;
    if (fstat(fds[KEEPER_ORDER], &file) != 0)
        return errno;
    size_t size = (size_t)file.st_size;
    char *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[KEEPER_ORDER], 0);
    if (base == MAP_FAILED)
        return errno;
    int failure = spawn(base, fds, pid);
    munmap(base, size);
    for (int i = KEEPER_ORDER; i < KEEPER_FDS; i++)
        close(fds[i]);
    return failure;
}

// ---- while it runs --------------------------------------------------------------------------

static void clear_signals(int signals)
{
    struct signalfd_siginfo ignored;
    while (read(signals, &ignored, sizeof ignored) > 0)
        ;
}

// Reaps adopted children. The leader stays a zombie until the end, so that its process group id stays in use.
static bool leader_exited(const struct keeper *keeper)
{
    siginfo_t found = {0};
    while (waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) == 0 && found.si_pid) {
        if (found.si_pid == keeper->leader)
            return true;
        waitpid(found.si_pid, NULL, 0);
        found.si_pid = 0;
    }
    return false;
}

// False: end the tree.
static bool obey(const struct keeper *keeper)
{
    unsigned char signal;
    ssize_t got = recv(keeper->control, &signal, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0 || signal == SIGKILL)
        return false;
    kill(-keeper->leader, signal);
    return true;
}

static void watch(const struct keeper *keeper)
{
    struct pollfd fds[] = {{.fd = keeper->control, .events = POLLIN}, {.fd = keeper->signals, .events = POLLIN}};
    for (;;) {
        poll(fds, 2, -1);
        clear_signals(keeper->signals);
        if (leader_exited(keeper) || (fds[0].revents && !obey(keeper)))
            return;
    }
}

// ---- the end --------------------------------------------------------------------------------

static void kill_unless_spared(pid_t pid, const pid_t *spared, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (spared[i] == pid)
            return;
    kill(pid, SIGKILL);
}

void keeper_kill_children(const pid_t *spared, size_t count)
{
    char path[64], block[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    pid_t pid = 0;
    ssize_t got;
    while (fd >= 0 && (got = read(fd, block, sizeof block)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (block[i] >= '0' && block[i] <= '9') {
                pid = pid * 10 + (block[i] - '0');
                continue;
            }
            if (pid)
                kill_unless_spared(pid, spared, count);
            pid = 0;
        }
    if (fd >= 0)
        close(fd);
}

// True while the keeper has children.
static bool reap(struct keeper *keeper)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == keeper->leader)
            keeper->status = status;
    return pid == 0;
}

static void end_tree(struct keeper *keeper)
{
    struct pollfd signals = {.fd = keeper->signals, .events = POLLIN};
    kill(-keeper->leader, SIGKILL);
    for (int ms = 0; reap(keeper); ms++) {
        keeper_kill_children(NULL, 0);
        if (ms == TREE_MS)
            keeper_tell(keeper->control, KEEPER_EXITED, keeper->status);
        poll(&signals, 1, ms < TREE_MS ? 1 : SLOW_MS);
        clear_signals(keeper->signals);
    }
    keeper_tell(keeper->control, KEEPER_EXITED, keeper->status);
}

void keeper_run(const int fds[KEEPER_FDS], int signals)
{
    struct keeper keeper = {.control = fds[KEEPER_CONTROL], .signals = signals, .status = SIGKILL};
    prctl(PR_SET_NAME, "postern-keeper", 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    int failure = start(fds, &keeper.leader);
    if (failure) {
        keeper_tell(keeper.control, KEEPER_FAILED, failure);
        _exit(0);
    }
    keeper_tell(keeper.control, KEEPER_STARTED, keeper.leader);
    watch(&keeper);
    end_tree(&keeper);
    _exit(0);
}
