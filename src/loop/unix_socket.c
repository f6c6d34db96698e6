// Owns the files of listening unix sockets, connections to them, and descriptors passed over them.
//
// A unix socket is created under a lock on its folder, so that of two gateways that start at the same time, the second
// detects the first. An existing file is replaced only if it is a socket on which no process accepts.
#include "loop/unix_socket.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 1024
#define LOCK_TRIES 40
#define LOCK_PAUSE_NS 25000000L

// Any user who may read the folder can lock it, but a gateway holds the lock only for an instant: one that stays is ignored.
static bool lock(int folder, const char *path)
{
    for (int tries = 1; flock(folder, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        if (tries == LOCK_TRIES) {
            log_warn("folder of a socket is locked by another process: not waiting for it", LOG_STR("folder", path));
            return true;
        }
        nanosleep(&(struct timespec){0, LOCK_PAUSE_NS}, NULL);
    }
    return true;
}

// The folder, locked; -1 with the error set.
static int lock_folder(const char *path, struct err *err)
{
    size_t len = (size_t)(strrchr(path, '/') - path);
    char *folder = mem_copy(path, len ? len : 1);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && !lock(fd, folder)) {
        int why = errno;
        close(fd);
        errno = why;
        fd = -1;
    }
    if (fd < 0)
        (void)err_set(err, ERR_CONFIG, "cannot listen on unix:%s: cannot open and lock the folder %s: %s", path, folder,
                      strerror(errno));
    free(folder);
    return fd;
}

static int connect_to(const struct sockaddr_un *name)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)name, sizeof *name) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

bool unix_socket_peer(int fd, struct unix_socket_peer *peer)
{
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 || len != sizeof who)
        return false;
    *peer = (struct unix_socket_peer){who.pid, who.uid};
    return true;
}

// Clears the path: it is free already, or a socket on which no process accepts, which is removed.
static bool clear_path(const struct sockaddr_un *name, struct err *err)
{
    const char *path = name->sun_path;
    struct stat there;
    if (lstat(path, &there) < 0)
        return errno == ENOENT || err_set(err, ERR_CONFIG, "cannot listen on unix:%s: %s", path, strerror(errno));
    if (!S_ISSOCK(there.st_mode))
        return err_set(err, ERR_CONFIG,
                       "cannot listen on unix:%s: the existing file is not a socket; move it away, or choose "
                       "another path",
                       path);
    struct unix_socket_peer holder = {0};
    int fd = connect_to(name), why = fd < 0 ? errno : 0;
    if (fd >= 0) {
        (void)!unix_socket_peer(fd, &holder);
        close(fd);
    }
    if (why == ECONNREFUSED)
        return unlink(path) == 0 || errno == ENOENT ||
               err_set(err, ERR_CONFIG, "cannot listen on unix:%s: cannot remove the stale socket: %s", path,
                       strerror(errno));
    if (why == EACCES || why == EPERM)
        return err_set(
            err, ERR_CONFIG,
            "cannot listen on unix:%s: cannot connect to the existing socket, to see whether it is in use: %s; "
            "remove it, or choose another path",
            path, strerror(why));
    char pid[32] = "";
    if (holder.pid)
        snprintf(pid, sizeof pid, " (pid %ld)", (long)holder.pid);
    return err_set(err, ERR_CONFIG,
                   "cannot listen on unix:%s: another process%s listens there already; stop it, or choose another path",
                   path, pid);
}

bool unix_socket_adopt(struct unix_socket_file *file, int fd, const char *path)
{
    struct stat there;
    if (lstat(path, &there) < 0)
        return false;
    *file = (struct unix_socket_file){mem_string(path), there.st_dev, there.st_ino};
    return listen(fd, BACKLOG) == 0;
}

static int bind_path(struct unix_socket_file *file, const struct sockaddr_un *name, mode_t mode, struct err *err)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t before = umask(0777 & ~mode);  // so it never has another mode
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)name, sizeof *name) == 0;
    umask(before);
    if (bound && unix_socket_adopt(file, fd, name->sun_path))
        return fd;
    (void)err_set(err, ERR_CONFIG, "cannot listen on unix:%s: %s", name->sun_path, strerror(errno));
    unix_socket_remove(file);
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool set_name(struct sockaddr_un *name, const char *path)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    return (size_t)snprintf(name->sun_path, sizeof name->sun_path, "%s", path) < sizeof name->sun_path;
}

int unix_socket_listen(struct unix_socket_file *file, const char *path, mode_t mode, struct err *err)
{
    struct sockaddr_un name;
    *file = (struct unix_socket_file){0};
    if (path[0] != '/' || !set_name(&name, path)) {
        (void)err_set(err, ERR_CONFIG, "cannot listen on unix:%s: the path must be absolute and at most %d bytes long",
                      path, UNIX_SOCKET_PATH_MAX);
        return -1;
    }
    int folder = lock_folder(path, err);
    if (folder < 0)
        return -1;
    int fd = clear_path(&name, err) ? bind_path(file, &name, mode, err) : -1;
    close(folder);
    return fd;
}

void unix_socket_remove(struct unix_socket_file *file)
{
    struct stat there;
    if (file->path && lstat(file->path, &there) == 0 && there.st_dev == file->device && there.st_ino == file->inode &&
        unlink(file->path) < 0)
        log_warn("cannot remove the socket", LOG_STR("path", file->path), LOG_STR("detail", strerror(errno)));
    unix_socket_leave(file);
}

void unix_socket_leave(struct unix_socket_file *file)
{
    free(file->path);
    *file = (struct unix_socket_file){0};
}

int unix_socket_connect(const char *path, struct err *err)
{
    struct sockaddr_un name;
    int fd = set_name(&name, path) ? connect_to(&name) : (errno = ENAMETOOLONG, -1);
    if (fd < 0)
        (void)err_set(err, ERR_UNAVAILABLE, "%s: %s", path, strerror(errno));
    return fd;
}

// ---- descriptors ----------------------------------------------------------------------------

union descriptors {
    char bytes[CMSG_SPACE(UNIX_SOCKET_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

ssize_t unix_socket_send(int fd, struct span bytes, const int *fds, size_t count)
{
    union descriptors control = {0};
    struct iovec io = {(char *)(uintptr_t)bytes.at, bytes.len};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
    if (count > UNIX_SOCKET_FDS_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    if (count) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t unix_socket_receive(int fd, void *at, size_t room, int fds[UNIX_SOCKET_FDS_MAX], size_t *count)
{
    union descriptors control = {0};
    struct iovec io = {at, room};
    struct msghdr message = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
    *count = 0;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        *count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(header), *count * sizeof(int));
    }
    if (got < 0 || !(message.msg_flags & MSG_CTRUNC))
        return got;
    while (*count)
        close(fds[--*count]);
    errno = EMSGSIZE;
    return -1;
}
