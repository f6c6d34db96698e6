// The arguments of a call, as the policy evaluates them.
#ifndef GATE_ARGUMENTS_H
#define GATE_ARGUMENTS_H

#include "base/json.h"
#include "gate/session/call.h"

// Sets call->arguments, and *out to a tree of them if a rule has conditions on them, otherwise to NULL. False: the arguments are
// malformed.
bool arguments_read(struct call *call, const struct policy_question *question, json_t **out) MUST_CHECK;

#endif
