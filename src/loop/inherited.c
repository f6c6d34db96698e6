// Owns listening sockets that this process did not open itself, until the listeners of the configuration take them.
//
// They come from systemd (socket activation, and the sockets of a previous process in its file descriptor store) and from a
// gateway that is being replaced. A listener recognizes its socket by the address to which the socket is bound, never by its
// position or by a name. So a socket that the configuration does not list is not served.
#include "loop/inherited.h"
#include "base/log.h"
#include "inherited.h"
#include "loop/notify.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_FD 3  // SD_LISTEN_FDS_START
#define LISTEN_FDS_MAX 4096

static void name_address(const struct sockaddr *address, socklen_t len, char name[INHERITED_NAME_CHARS])
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    name[0] = '\0';
    if (getnameinfo(address, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(name, INHERITED_NAME_CHARS, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

void inherited_name(int fd, char name[INHERITED_NAME_CHARS])
{
    union {
        struct sockaddr any;
        struct sockaddr_un path;
        struct sockaddr_storage storage;
    } address = {0};
    socklen_t len = sizeof address;
    name[0] = '\0';
    if (getsockname(fd, &address.any, &len) < 0)
        return;
    if (address.any.sa_family != AF_UNIX)
        name_address(&address.any, len, name);
    else if (address.path.sun_path[0] == '/')
        snprintf(name, INHERITED_NAME_CHARS, "unix:%.*s", (int)sizeof address.path.sun_path, address.path.sun_path);
}

// ---- receiving ------------------------------------------------------------------------------

static int socket_option(int fd, int option)
{
    int value = 0;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

static bool is_usable(int fd)
{
    return socket_option(fd, SO_ACCEPTCONN) == 1 && socket_option(fd, SO_TYPE) == SOCK_STREAM &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0;
}

static void drop(int fd, const char *why)
{
    char name[INHERITED_NAME_CHARS];
    inherited_name(fd, name);
    log_warn("inherited socket closed", LOG_STR("address", name), LOG_INT("fd", fd), LOG_STR("detail", why));
    close(fd);
}

void inherited_add(struct inherited *inherited, int fd)
{
    if (!is_usable(fd))
        drop(fd, "not a listening stream socket");
    else if (inherited->count == INHERITED_MAX)
        drop(fd, "there are more than 64 inherited sockets");
    else
        inherited->fds[inherited->count++] = fd;
}

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long number = text && *text ? strtol(text, &end, 10) : -1;
    return end && *end ? -1 : number;
}

void inherited_from_environment(struct inherited *inherited)
{
    static const char *const variables[] = {"LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES"};
    long count = number_of("LISTEN_PID") == (long)getpid() ? number_of("LISTEN_FDS") : 0;
    for (int fd = FIRST_FD; fd < FIRST_FD + count && fd < FIRST_FD + LISTEN_FDS_MAX; fd++)
        inherited_add(inherited, fd);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

// ---- taking ---------------------------------------------------------------------------------

static int take(struct inherited *inherited, const char *wanted)
{
    char name[INHERITED_NAME_CHARS];
    for (size_t i = 0; *wanted && i < inherited->count; i++) {
        int fd = inherited->fds[i];
        inherited_name(fd, name);
        if (strcmp(name, wanted) == 0) {
            inherited->fds[i] = inherited->fds[--inherited->count];
            return fd;
        }
    }
    return -1;
}

int inherited_take(struct inherited *inherited, const struct sockaddr *address, socklen_t len)
{
    char name[INHERITED_NAME_CHARS];
    name_address(address, len, name);
    return take(inherited, name);
}

int inherited_take_path(struct inherited *inherited, const char *path)
{
    char name[INHERITED_NAME_CHARS];
    struct stat there;
    snprintf(name, sizeof name, "unix:%s", path);
    return lstat(path, &there) == 0 && S_ISSOCK(there.st_mode) ? take(inherited, name) : -1;
}

void inherited_close(struct inherited *inherited)
{
    while (inherited->count) {
        int fd = inherited->fds[--inherited->count];
        notify_forget(fd);
        drop(fd, "no listener of the configuration has this address");
    }
}
