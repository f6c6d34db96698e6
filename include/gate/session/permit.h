// Which methods the policy decides, and as which kind of item.
#ifndef GATE_PERMIT_H
#define GATE_PERMIT_H

#include "gate/session/call.h"

// A method is never permitted, always (to every authenticated caller), if the policy allows its target, or to the owner of the
// task.
enum permit { PERMIT_NEVER, PERMIT_ALWAYS, PERMIT_POLICY, PERMIT_OWNER };
enum permit permit_of(const struct call *call, enum policy_kind *kind);
enum policy_kind permit_policy_kind(enum catalog_kind kind);  // the policy's kind for items of such a list
enum catalog_kind permit_listed_kind(enum method method);     // the kind of items that a list method returns

#endif
