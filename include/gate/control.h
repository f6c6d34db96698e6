// What an operator can ask of a running gateway, whichever way the question comes: trees for people and programs, and no socket.
#ifndef GATE_CONTROL_H
#define GATE_CONTROL_H

#include "base/err.h"
#include "base/json.h"

struct gate;

// The operator, for the audit log.
struct gate_control_actor {
    const char *provider;  // what vouches for the subject: "os" for a process of this machine
    const char *subject;
    const char *from;  // the process
};

json_t *gate_control_status(const struct gate *gate);
// Of one tenant, or of all (NULL): an array with an object for each configured server. NULL: there is no such tenant.
json_t *gate_control_servers(const struct gate *gate, const char *tenant, struct err *err) MUST_CHECK;

// A server that an operator names.
struct gate_control_target {
    const char *tenant;
    const char *server;
};

// An array with the kept stderr of each instance. NULL: there is no such server.
json_t *gate_control_logs(const struct gate *gate, const struct gate_control_target *target,
                          struct err *err) MUST_CHECK;

// Records an operation that was carried out, or that failed.
void gate_control_record(struct gate *gate, const struct gate_control_actor *actor, const char *operation,
                         const struct err *err);

#endif
