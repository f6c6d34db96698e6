// The state of a configured server that outlives the links to it, but not the gateway: counts, durations, the last error.
#ifndef GATE_SESSION_SERVER_RUNTIME_H
#define GATE_SESSION_SERVER_RUNTIME_H

#include "gate/session/state.h"

#define SERVER_RUNTIME_BUCKETS 128

struct server_runtime {
    bool disabled;    // by an operator; the configuration may disable it as well
    uint64_t calls;   // answered, or failed
    uint64_t failed;  // without an answer of the server
    uint32_t recent;  // calls in the buckets: the last ones count more
    uint32_t buckets[SERVER_RUNTIME_BUCKETS];
    char error[256], error_at[32];  // why it last went down; "": it did not
};

struct server_runtime *server_runtime_get(struct tenant *tenant, const char *server);
const struct server_runtime *server_runtime_find(const struct tenant *tenant, const char *server);  // NULL: none yet

bool server_runtime_enabled(const struct tenant *tenant, const struct server *server);  // by both

void server_runtime_count(struct server_runtime *runtime, int64_t us, bool failed);
int64_t server_runtime_p99_us(const struct server_runtime *runtime);  // -1: no call yet
void server_runtime_note_error(struct server_runtime *runtime, const char *why);

#endif
