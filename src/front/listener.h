// One listening socket, TCP or unix, and what it can tell about those who connect.
#ifndef FRONT_LISTENER_H
#define FRONT_LISTENER_H

#include "auth/caller/credentials.h"
#include "base/err.h"
#include "config/front.h"
#include <sys/types.h>

struct listener {
    int fd;      // -1: closed, or somebody else's now
    char *url;   // as it is told to people: http://127.0.0.1:8080/mcp, https://…, unix:/path
    bool local;  // only this host reaches it
    char *path;  // of a unix socket, else NULL
    dev_t device;
    ino_t inode;  // so that it takes away its own socket file and no other
};

// On failure nothing is left open and nothing is to be released.
bool listener_open(struct listener *listener, const struct config_listener *config, struct err *err) MUST_CHECK;
void listener_remove(struct listener *listener);   // takes the socket file away; new callers find nothing
void listener_release(struct listener *listener);  // closes it, too

// Fills in the address; the rest of the peer is not touched.
void listener_peer(int fd, struct peer *peer);

#endif
