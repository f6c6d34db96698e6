// Whether an identity may do something. Zero denies.
#ifndef AUTH_POLICY_H
#define AUTH_POLICY_H

#include "auth/identity.h"
#include "base/span.h"

enum verdict { VERDICT_DENY, VERDICT_ALLOW };

struct policy;

struct policy_question {
    const struct identity *identity;
    const char *action;  // "call", "read", "get", "list", …
    const char *kind;    // "tool", "resource", "prompt", "server"
    const char *server;  // NULL: the gateway itself
    struct span name;    // canonical: the server's own name for it
};

struct policy_decision {
    enum verdict verdict;
    const char *rule;
};

// The policy that goes with provider `none` on a loopback listener: whoever got in may do everything.
extern const struct policy policy_allow_all;

struct policy_decision policy_decide(const struct policy *policy, const struct policy_question *question);

#endif
