// Owns the notification socket of the service manager.
//
// The protocol is a datagram of a few lines. It is written here, because libsystemd is a large dependency for one sendmsg().
// A stored socket is named after its address (systemd allows no colon in a name), so that it can be forgotten by the address alone.
// Sending never waits: a message that the manager does not take at once is lost, with a log line.
#include "loop/notify.h"
#include "base/log.h"
#include "inherited.h"
#include "loop/unix_socket.h"
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static int manager = -1;

// A path, or "@" and an abstract name.
static bool connect_to(int fd, const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len >= sizeof name.sun_path) {
        errno = EINVAL;
        return false;
    }
    memcpy(name.sun_path, path, len);
    if (path[0] == '@')
        name.sun_path[0] = '\0';
    return connect(fd, (const struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) == 0;
}

void notify_open(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || !*path)
        return;
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (manager < 0 || !connect_to(manager, path)) {
        log_warn("service manager not notified", LOG_STR("socket", path), LOG_STR("detail", strerror(errno)));
        if (manager >= 0)
            close(manager);
        manager = -1;
    }
    unsetenv("NOTIFY_SOCKET");
}

bool notify_is_open(void) { return manager >= 0; }

static void send_lines(const char *lines, const int *fds, size_t count)
{
    if (manager >= 0 && unix_socket_send(manager, span_of(lines), fds, count) < 0)
        log_warn("service manager not notified", LOG_STR("message", lines), LOG_STR("detail", strerror(errno)));
}

void notify_ready(void) { send_lines("READY=1", NULL, 0); }
void notify_stopping(void) { send_lines("STOPPING=1", NULL, 0); }

static void send_socket(const char *what, int fd, size_t count)
{
    char name[INHERITED_NAME_CHARS], lines[INHERITED_NAME_CHARS + 64];
    inherited_name(fd, name);
    for (char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("./-[]", *c))
            *c = '_';
    snprintf(lines, sizeof lines, "%s\nFDNAME=%s", what, name);
    if (*name)
        send_lines(lines, &fd, count);
}

void notify_store(int fd) { send_socket("FDSTORE=1", fd, 1); }
void notify_forget(int fd) { send_socket("FDSTOREREMOVE=1", fd, 0); }
