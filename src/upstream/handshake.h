// The handshake with a server.
#ifndef UPSTREAM_HANDSHAKE_H
#define UPSTREAM_HANDSHAKE_H

#include "upstream.h"

// Sends initialize. Its answer leads to transport.greet(), or to on_lost() if the server cannot be used.
void handshake_start(struct upstream *upstream);

#endif
