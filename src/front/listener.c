// Owns opening and closing of listening sockets, and the files of unix sockets.
//
// A unix socket is created under a lock on its folder, so that of two gateways that start at once one finds
// the other. What is there already is replaced only if it is a socket and nobody accepts on it.
#include "listener.h"
#include "base/log.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG 1024
#define LOCK_TRIES 40
#define LOCK_PAUSE_NS 25000000L

// ---- TCP ------------------------------------------------------------------------------------

static bool port_of(int fd, char *out, size_t size)
{
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    return getsockname(fd, (struct sockaddr *)&name, &len) == 0 &&
           getnameinfo((struct sockaddr *)&name, len, NULL, 0, out, (socklen_t)size, NI_NUMERICSERV) == 0;
}

static int open_tcp(const char *address, const char *host, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found = NULL;
    size_t len = strlen(host);
    char *bare = mem_copy(host[0] == '[' ? host + 1 : host, host[0] == '[' ? len - 2 : len);
    int code = getaddrinfo(bare, address + len + 1, &hints, &found), fd = -1, on = 1;
    free(bare);
    if (code) {
        (void)err_set(err, ERR_CONFIG, "cannot listen on %s: %s", address, gai_strerror(code));
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        (void)err_set(err, ERR_CONFIG, "cannot listen on %s: %s%s", address, strerror(errno),
                      errno == EADDRINUSE ? "; stop what uses it, or choose another port with --listen" : "");
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static bool open_port(struct listener *listener, const struct config_listener *config, struct err *err)
{
    const char *colon = strrchr(config->address, ':');
    char *host = mem_copy(config->address, (size_t)(colon - config->address)), port[16] = "?";
    listener->fd = open_tcp(config->address, host, err);
    if (listener->fd >= 0) {
        if (!port_of(listener->fd, port, sizeof port))
            log_warn("cannot tell the port", LOG_STR("detail", strerror(errno)));
        struct buf url = {0};
        buf_printf(&url, "%s://%s:%s/mcp", config->tls.certificate ? "https" : "http", host, port);
        listener->url = buf_take(&url, NULL);
        listener->local = config_listener_is_loopback(config->address);
    }
    free(host);
    return listener->fd >= 0;
}

// ---- unix sockets ---------------------------------------------------------------------------

// The folder, locked; -1 with the error set.
static int lock_folder(const char *path, struct err *err)
{
    size_t len = (size_t)(strrchr(path, '/') - path);
    char *folder = mem_copy(path, len ? len : 1);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), tries = 0;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ++tries == LOCK_TRIES) {
            int saved = errno;
            close(fd);
            fd = -1;
            errno = saved;
            break;
        }
        nanosleep(&(struct timespec){0, LOCK_PAUSE_NS}, NULL);
    }
    if (fd < 0)
        (void)err_set(err, ERR_CONFIG, "cannot listen on unix:%s: cannot open and lock the folder %s: %s", path, folder,
                      strerror(errno));
    free(folder);
    return fd;
}

// Makes room at the path: nothing there, or a socket that nobody accepts on, which goes.
static bool clear_path(const struct sockaddr_un *name, struct err *err)
{
    const char *path = name->sun_path;
    struct stat there;
    if (lstat(path, &there) < 0)
        return errno == ENOENT || err_set(err, ERR_CONFIG, "cannot listen on unix:%s: %s", path, strerror(errno));
    if (!S_ISSOCK(there.st_mode))
        return err_set(err, ERR_CONFIG,
                       "cannot listen on unix:%s: something that is not a socket is there; move it away, or choose "
                       "another path",
                       path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool dead = fd >= 0 && connect(fd, (const struct sockaddr *)name, sizeof *name) < 0 && errno == ECONNREFUSED;
    int code = dead ? 0 : errno;
    if (fd >= 0)
        close(fd);
    if (dead)
        return unlink(path) == 0 || errno == ENOENT ||
               err_set(err, ERR_CONFIG, "cannot listen on unix:%s: cannot remove the stale socket: %s", path,
                       strerror(errno));
    if (code == EACCES || code == EPERM)
        return err_set(err, ERR_CONFIG, "cannot listen on unix:%s: a socket is there that we may not look into: %s",
                       path, strerror(code));
    return err_set(err, ERR_CONFIG,
                   "cannot listen on unix:%s: somebody listens there already; stop it, or choose another path", path);
}

static bool bind_path(struct listener *listener, const struct sockaddr_un *name, mode_t mode, struct err *err)
{
    struct stat made;
    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mode_t before = umask(0777 & ~mode);  // so it never has another mode, not even for a moment
    bool bound = listener->fd >= 0 && bind(listener->fd, (const struct sockaddr *)name, sizeof *name) == 0;
    umask(before);
    if (bound && lstat(name->sun_path, &made) == 0) {
        listener->path = mem_string(name->sun_path);
        listener->device = made.st_dev;
        listener->inode = made.st_ino;
        if (listen(listener->fd, BACKLOG) == 0)
            return true;
    }
    (void)err_set(err, ERR_CONFIG, "cannot listen on unix:%s: %s", name->sun_path, strerror(errno));
    listener_release(listener);
    return false;
}

static bool open_path(struct listener *listener, const struct config_listener *config, struct err *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const char *path = config_listener_unix_path(config->address);
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int folder = lock_folder(path, err);
    if (folder < 0)
        return false;
    mode_t mode = config->mode ? (mode_t)strtoul(config->mode, NULL, 8) : 0600;
    bool ok = clear_path(&name, err) && bind_path(listener, &name, mode, err);
    close(folder);
    if (ok) {
        listener->url = mem_string(config->address);
        listener->local = true;
    }
    return ok;
}

bool listener_open(struct listener *listener, const struct config_listener *config, struct err *err)
{
    *listener = (struct listener){.fd = -1};
    return config_listener_unix_path(config->address) ? open_path(listener, config, err)
                                                      : open_port(listener, config, err);
}

void listener_remove(struct listener *listener)
{
    struct stat there;
    if (listener->path && lstat(listener->path, &there) == 0 && there.st_dev == listener->device &&
        there.st_ino == listener->inode && unlink(listener->path) < 0)
        log_warn("cannot remove the socket", LOG_STR("path", listener->path), LOG_STR("detail", strerror(errno)));
    free(listener->path);
    listener->path = NULL;
}

void listener_release(struct listener *listener)
{
    listener_remove(listener);
    if (listener->fd >= 0)
        close(listener->fd);
    listener->fd = -1;
    free(listener->url);
    listener->url = NULL;
}

// ---- who connects ---------------------------------------------------------------------------

void listener_peer(int fd, struct peer *peer)
{
    struct sockaddr_storage *address = &peer->address;
    socklen_t len = sizeof *address;
    if (getpeername(fd, (struct sockaddr *)address, &len) < 0) {
        *address = (struct sockaddr_storage){0};  // gone already
        return;
    }
    struct sockaddr_in6 six;
    memcpy(&six, address, sizeof six);
    if (address->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
        memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof four.sin_addr);
        *address = (struct sockaddr_storage){0};
        memcpy(address, &four, sizeof four);
    }
    if (address->ss_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        peer->loopback = ntohl(four.sin_addr.s_addr) >> 24 == 127;
    } else if (address->ss_family == AF_INET6) {
        peer->loopback = IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
    }
}
