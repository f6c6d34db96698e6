// Owns the decision whether an identity may do something.
#include "auth/policy.h"
#include <stddef.h>

struct policy {
    const char *rule;
    bool allow_all;
};

const struct policy policy_allow_all = {"builtin:allow-all", true};

struct policy_decision policy_decide(const struct policy *policy, const struct policy_question *question)
{
    if (!policy || !policy->allow_all || !question->identity || question->identity->proof == IDENTITY_NONE)
        return (struct policy_decision){VERDICT_DENY, "builtin:default-deny"};
    return (struct policy_decision){VERDICT_ALLOW, policy->rule};
}
