// Owns the names of the kinds of items that a policy is about.
#include "source.h"

const char *const policy_kind_words[] = {[POLICY_TOOL] = "tool",
                                         [POLICY_RESOURCE] = "resource",
                                         [POLICY_TEMPLATE] = "resource_template",
                                         [POLICY_PROMPT] = "prompt",
                                         [POLICY_KINDS] = NULL};

bool policy_kind_parse(const char *word, enum policy_kind *out)
{
    for (int i = 0; policy_kind_words[i]; i++)
        if (strcmp(word, policy_kind_words[i]) == 0) {
            *out = (enum policy_kind)i;
            return true;
        }
    return false;
}

const char *policy_kind_text(enum policy_kind kind) { return policy_kind_words[kind]; }
