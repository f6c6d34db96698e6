// Which methods the policy is asked about, and as what.
#ifndef GATE_PERMIT_H
#define GATE_PERMIT_H

#include "gate/session/call.h"

// Who may: every authenticated caller, those that the policy allows one thing, or the owner of a task.
enum permit { PERMIT_NOBODY, PERMIT_ANYBODY, PERMIT_POLICY, PERMIT_OWNER };
enum permit permit_of(const struct call *call, enum policy_kind *kind);
enum policy_kind permit_policy_kind(enum catalog_kind kind);  // what the policy calls an item of such a list
enum catalog_kind permit_listed_kind(enum method method);     // what a list has

#endif
