// Listening unix sockets with their files.
#ifndef LOOP_UNIX_SOCKET_H
#define LOOP_UNIX_SOCKET_H

#include "base/err.h"
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
// Removes the file, unless another process has put its own socket there.
void unix_socket_remove(struct unix_socket_file *file);

#endif
