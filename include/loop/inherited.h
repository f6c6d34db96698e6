// Listening sockets that another process gave to this one: a service manager at the start, or the gateway that is replaced.
#ifndef LOOP_INHERITED_H
#define LOOP_INHERITED_H

#include <stddef.h>
#include <sys/socket.h>

enum { INHERITED_MAX = 64 };

// Sockets that no listener has taken yet. Zeroed, it is empty.
struct inherited {
    int fds[INHERITED_MAX];
    size_t count;
};

// Adds the sockets of LISTEN_FDS, as in sd_listen_fds(3), and removes its variables from the environment.
void inherited_from_environment(struct inherited *inherited);
// Adds a socket. A descriptor that is not a listening stream socket, or that exceeds INHERITED_MAX, is closed with a log line.
void inherited_add(struct inherited *inherited, int fd);
// Returns the socket that is bound to this address, or to this path if its file still exists; otherwise -1.
int inherited_take(struct inherited *inherited, const struct sockaddr *address, socklen_t len);
int inherited_take_path(struct inherited *inherited, const char *path);
void inherited_close(struct inherited *inherited);  // those that are left, each with a log line

#endif
