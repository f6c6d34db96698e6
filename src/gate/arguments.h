// What the policy judges of a call besides the name.
#ifndef GATE_ARGUMENTS_H
#define GATE_ARGUMENTS_H

#include "base/json.h"
#include "gate/session/call.h"

// In call->arguments, and as a tree if a rule looks at it; else *out is NULL. False: they are malformed.
bool arguments_read(struct call *call, const struct policy_question *question, json_t **out) MUST_CHECK;

#endif
