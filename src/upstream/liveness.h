// Whether a server that does not answer in time still lives.
#ifndef UPSTREAM_LIVENESS_H
#define UPSTREAM_LIVENESS_H

#include "upstream.h"

// A request of it has timed out, and is about to fail.
void liveness_on_timeout(struct upstream *upstream, const struct upstream_request *request);
// It has sent nothing for longer than it should.
void liveness_on_idle(struct upstream *upstream);

#endif
