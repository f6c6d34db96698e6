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

// Records an operation that was carried out, or that failed.
void gate_control_record(struct gate *gate, const struct gate_control_actor *actor, const char *operation,
                         const struct err *err);

#endif
