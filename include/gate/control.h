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

// Each of these changes something: it is logged and recorded in the audit log, also if it fails.
typedef json_t *gate_control_change(struct gate *gate, const struct gate_control_actor *actor,
                                    const struct gate_control_target *target, struct err *err) MUST_CHECK;
// Retires the processes of the server, which finish their calls, and starts others. {"instances":1}: so many were retired.
gate_control_change gate_control_restart;
// The server is as if the configuration had "disabled": true, until gate_control_enable() or the end of the gateway.
gate_control_change gate_control_disable, gate_control_enable;
// Records a change that was made elsewhere. `target` may be NULL; `err`: it failed.
void gate_control_record(struct gate *gate, const struct gate_control_actor *actor, const char *operation,
                         const struct gate_control_target *target, const struct err *err);

#endif
