// The gate: takes arrivals, walks each call through the phase table, and keeps sessions and servers.
#ifndef GATE_GATE_H
#define GATE_GATE_H

#include "base/err.h"
#include "gate/arrival.h"
#include "gate/config.h"
#include "loop/http_client.h"
#include "loop/loop.h"

struct gate *gate_new(struct loop *loop, struct http_client *http, const struct config *config);
// Lets calls in flight finish up to the deadline, ends sessions, then servers; then on_done.
void gate_shutdown(struct gate *gate, void (*on_done)(void *arg), void *arg);
void gate_free(struct gate *gate);
const struct config *gate_config(const struct gate *gate);

#endif
