// The handshake with a server.
#ifndef UPSTREAM_HANDSHAKE_H
#define UPSTREAM_HANDSHAKE_H

#include "upstream.h"

// Sends initialize. Its answer leads to transport.greet(), or to on_lost() if the server cannot be used.
void handshake_start(struct upstream *upstream);

// Reads the answer that an earlier connection received, unless this one has received its own. False: it cannot be used.
bool handshake_restore(struct upstream *upstream, struct span result) MUST_CHECK;

#endif
