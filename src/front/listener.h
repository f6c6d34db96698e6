// One listening socket, TCP or unix, and the addresses of the callers that connect to it.
#ifndef FRONT_LISTENER_H
#define FRONT_LISTENER_H

#include "auth/caller/credentials.h"
#include "base/err.h"
#include "config/front.h"
#include "loop/inherited.h"
#include "loop/unix_socket.h"

struct listener {
    int fd;                        // -1: closed
    char *url;                     // for logs: http://127.0.0.1:8080/mcp, https://…, unix:/path
    bool local;                    // reachable from this host only
    struct unix_socket_file file;  // of a unix socket
};

// Takes the inherited socket with this address, or opens one. On failure nothing stays open, and the listener must not be released.
bool listener_open(struct listener *listener, const struct config_listener *config, struct inherited *inherited,
                   struct err *err) MUST_CHECK;
// The file of an inherited unix socket belongs to this process from now on. Until then, releasing the listener leaves it there.
void listener_own_file(struct listener *listener, const struct config_listener *config);
void listener_release(struct listener *listener);  // closes it and removes the socket file
// Duplicates the socket for a successor with other options. Until listener_take_over() is called, the socket file belongs to
// `from`, so that releasing the successor does not remove it.
bool listener_share(struct listener *listener, const struct listener *from, const struct config_listener *config,
                    struct err *err) MUST_CHECK;
void listener_take_over(struct listener *listener, struct listener *from, const struct config_listener *config);

// Fills in the address and whether it is a loopback address; leaves the rest of the peer unchanged.
void listener_peer(int fd, struct peer *peer);

#endif
