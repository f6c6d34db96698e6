// Owns the spawner: the process that forks a keeper for each child process to be started.
//
// It is forked while the gateway is small, has one thread and has not read any secret, so that later forks are cheap
// and copy none of the gateway's memory into keepers. It ends when the gateway and all keepers have ended.
//
// The spawner is a subreaper as well. If a keeper is killed, the processes below it become children of the spawner,
// which kills every child that is not a keeper. Running servers survive the end of the spawner; the next start forks
// another one.
#include "loop/spawner.h"
#include "base/log.h"
#include "base/mem.h"
#include "keeper.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEND_MS 1000
#define STOP_MS 1000

// ---- the spawner's own process --------------------------------------------------------------

struct keepers {
    pid_t *at;
    size_t count, room;
};

static void keepers_add(struct keepers *keepers, pid_t pid)
{
    if (keepers->count == keepers->room) {
        keepers->room = keepers->room ? keepers->room * 2 : 64;
        keepers->at = mem_resize(keepers->at, keepers->room * sizeof *keepers->at);
    }
    keepers->at[keepers->count++] = pid;
}

static bool keepers_remove(struct keepers *keepers, pid_t pid)
{
    for (size_t i = 0; i < keepers->count; i++)
        if (keepers->at[i] == pid) {
            keepers->at[i] = keepers->at[--keepers->count];
            return true;
        }
    return false;
}

// Reaps children, and kills the processes that a killed keeper left behind, one generation after the other. A server
// runs as the same user as its keeper and may stop it: a stopped keeper is continued at once. False: the spawner has no
// children.
static bool reap(struct keepers *keepers)
{
    pid_t pid;
    int status;
    bool strays = false;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
        if (WIFSTOPPED(status))
            kill(pid, SIGCONT);
        else
            strays |= !keepers_remove(keepers, pid) || WIFSIGNALED(status);
    if (strays)
        keeper_kill_children(keepers->at, keepers->count);
    return pid == 0;
}

static void start_keeper(struct keepers *keepers, int socket, int signals, const int fds[KEEPER_FDS])
{
    pid_t pid = fork();
    if (pid == 0) {
        close(socket);
        keeper_run(fds, signals);
    }
    if (pid < 0)
        keeper_tell(fds[KEEPER_CONTROL], KEEPER_FAILED, errno);
    else
        keepers_add(keepers, pid);
    for (int i = 0; i < KEEPER_FDS; i++)
        close(fds[i]);
}

// False: the gateway has ended.
static bool take_request(struct keepers *keepers, int socket, int signals)
{
    char byte;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int[KEEPER_FDS]))];
    } control;
    struct iovec text = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR;
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (got > 0 && rights && rights->cmsg_len == CMSG_LEN(sizeof(int[KEEPER_FDS]))) {
        int fds[KEEPER_FDS];
        memcpy(fds, CMSG_DATA(rights), sizeof fds);
        start_keeper(keepers, socket, signals, fds);
    }
    return got > 0;
}

// Drops everything inherited that would keep a pipe or a connection of the gateway open, or react to its signals.
static int settle_in(int socket, const struct rlimit *files)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (socket != 3)
        dup2(socket, 3);
    closefrom(4);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    setsid();
    signal(SIGCHLD, SIG_DFL);
    setrlimit(RLIMIT_NOFILE, files);
    prctl(PR_SET_NAME, "postern-spawner", 0, 0, 0);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // the environment may hold secrets
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return 3;
}

static _Noreturn void run(int socket, const struct rlimit *files)
{
    struct keepers keepers = {0};
    sigset_t set;
    socket = settle_in(socket, files);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    int signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    struct pollfd fds[] = {{.fd = socket, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    for (;;) {
        struct signalfd_siginfo ignored;
        poll(fds, 2, -1);
        while (read(signals, &ignored, sizeof ignored) > 0)
            ;
        bool children = reap(&keepers);
        if (fds[0].revents && !take_request(&keepers, socket, signals))
            fds[0].fd = -1;
        if (fds[0].fd < 0 && !children)
            _exit(0);
    }
}

// ---- in the gateway -------------------------------------------------------------------------

// One for the process, which all loops share.
static struct {
    bool known;  // `files` is set
    // The limit of descriptors at the start. A new spawner gives it to its children, even if the gateway has raised its own.
    struct rlimit files;
    pid_t pid;  // 0: not running
    int socket;
} spawner;

static bool fork_spawner(int socket)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        run(socket, &spawner.files);
    int failure = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failure;
    spawner.pid = pid > 0 ? pid : 0;
    return pid > 0;
}

static bool start(void)
{
    int pair[2];
    if (spawner.pid)
        return true;
    if (!spawner.known)
        spawner.known = getrlimit(RLIMIT_NOFILE, &spawner.files) == 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    spawner.socket = pair[0];
    bool ok = fork_spawner(pair[1]);
    int failure = errno;
    close(pair[1]);
    if (!ok)
        close(pair[0]);
    errno = failure;
    return ok;
}

bool spawner_start(struct err *err)
{
    return start() || err_set(err, ERR_SYSTEM, "cannot fork the process that starts servers: %s", strerror(errno));
}

static bool try_send(const int fds[KEEPER_FDS])
{
    char byte = 0;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int[KEEPER_FDS]))];
    } control = {0};
    struct iovec text = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int[KEEPER_FDS]));
    memcpy(CMSG_DATA(rights), fds, sizeof(int[KEEPER_FDS]));
    struct pollfd room = {.fd = spawner.socket, .events = POLLOUT};
    ssize_t sent = sendmsg(spawner.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EAGAIN && poll(&room, 1, SEND_MS) > 0)
        sent = sendmsg(spawner.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0;
}

static void forget(bool ended)
{
    close(spawner.socket);
    waitpid(spawner.pid, NULL, ended ? 0 : WNOHANG);
    spawner.pid = 0;
}

bool spawner_send(const int fds[KEEPER_FDS])
{
    if (!start())
        return false;
    if (try_send(fds))
        return true;
    if (errno != EPIPE && errno != ECONNRESET)
        return false;
    log_error("spawner process ended unexpectedly; starting another", LOG_INT("pid", spawner.pid));
    forget(true);
    return start() && try_send(fds);
}

void spawner_stop(void)
{
    struct pollfd ended = {.fd = spawner.socket, .events = POLLIN};
    if (!spawner.pid)
        return;
    shutdown(spawner.socket, SHUT_WR);
    forget(poll(&ended, 1, STOP_MS) > 0);
}
