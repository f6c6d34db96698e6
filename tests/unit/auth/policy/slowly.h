// A slow reference for the compiled policy: evaluates one rule after the other, as `policy explain` does.
#ifndef SLOWLY_H
#define SLOWLY_H

#include "auth/policy/policy.h"
#include "unit.h"

// Every rule must also explain why it does not match, and only then.
static inline enum verdict decide_slowly(const struct policy *policy, const struct policy_question *question)
{
    bool allowed = false, denied = false;
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        struct buf why = {0}, via = {0};
        bool matches = policy_rule_matches(policy, rule, question, i % 2, &why, &via);
        assert_row(matches == (why.len == 0), rule->id);
        allowed = allowed || (matches && !rule->mode && rule->effect);
        denied = denied || (matches && !rule->mode && !rule->effect);
        buf_release(&why);
        buf_release(&via);
    }
    return allowed && !denied ? VERDICT_ALLOW : VERDICT_DENY;
}

#endif
