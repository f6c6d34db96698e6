// One listening socket, TCP or unix, and what it can tell about those who connect.
#ifndef FRONT_LISTENER_H
#define FRONT_LISTENER_H

#include "auth/caller/credentials.h"
#include "base/err.h"
#include "config/front.h"
#include "loop/unix_socket.h"

struct listener {
    int fd;                        // -1: closed
    char *url;                     // as people see it: http://127.0.0.1:8080/mcp, https://…, unix:/path
    bool local;                    // only this host reaches it
    struct unix_socket_file file;  // of a unix socket
};

// On failure nothing is left open, and there is nothing to release.
bool listener_open(struct listener *listener, const struct config_listener *config, struct err *err) MUST_CHECK;
void listener_release(struct listener *listener);  // closes it and removes the socket file
// The same socket once more, for a successor with other options. Whoever is released first leaves the socket file alone, if
// listener_take_over() has not been called.
bool listener_share(struct listener *listener, const struct listener *from, const struct config_listener *config,
                    struct err *err) MUST_CHECK;
void listener_take_over(struct listener *listener, struct listener *from, const struct config_listener *config);

// Fills in the address; the rest of the peer is not touched.
void listener_peer(int fd, struct peer *peer);

#endif
