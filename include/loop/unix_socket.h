// Listening unix sockets with their files, and the processes at the other end of a connection.
#ifndef LOOP_UNIX_SOCKET_H
#define LOOP_UNIX_SOCKET_H

#include "base/err.h"
#include "base/span.h"
#include <stdbool.h>
#include <sys/types.h>

// The file of a listening socket. Zeroed: no file.
struct unix_socket_file {
    char *path;  // NULL: no file
    dev_t device;
    ino_t inode;
};

enum { UNIX_SOCKET_PATH_MAX = 107 };

// Creates a socket file with this mode and listens. A file on which no process accepts is replaced; any other existing
// file is an error. Returns the descriptor, or -1 with the error set; then no file needs to be removed.
int unix_socket_listen(struct unix_socket_file *file, const char *path, mode_t mode, struct err *err) MUST_CHECK;
// The file at the path, to which the socket is bound, belongs to this process from now on, and unix_socket_peer() names this process
// to others: the socket listens, or listens once more. False with errno.
bool unix_socket_adopt(struct unix_socket_file *file, int fd, const char *path) MUST_CHECK;
// Removes the file, unless another process has put its own socket there.
void unix_socket_remove(struct unix_socket_file *file);
void unix_socket_leave(struct unix_socket_file *file);  // another process has the socket: the file stays

// Connects without waiting: the connection is in the backlog of the listening process at once. -1: the error is set.
int unix_socket_connect(const char *path, struct err *err) MUST_CHECK;

enum { UNIX_SOCKET_FDS_MAX = 64 };

// Like send() and recv() without waiting, with descriptors that are passed to or from the other process. Sending more than
// UNIX_SOCKET_FDS_MAX is an error.
ssize_t unix_socket_send(int fd, struct span bytes, const int *fds, size_t count);
// `count` is the number of descriptors received, all close-on-exec. More than UNIX_SOCKET_FDS_MAX are an error, and none stays open.
ssize_t unix_socket_receive(int fd, void *at, size_t room, int fds[UNIX_SOCKET_FDS_MAX], size_t *count);

struct unix_socket_peer {
    pid_t pid;
    uid_t uid;
};
// The process that connected, or that listens, when it did. False: it cannot be known.
bool unix_socket_peer(int fd, struct unix_socket_peer *peer) MUST_CHECK;

#endif
