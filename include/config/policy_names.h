// The names that a policy may use, as a configuration has them.
#ifndef CONFIG_POLICY_NAMES_H
#define CONFIG_POLICY_NAMES_H

#include "config/config.h"

// Each list ends with NULL. The texts belong to the configuration.
struct policy_names {
    const char **servers, **tenants, **providers;
};

// The names for the policy at this path: the servers of the tenants that use it, and all tenants and providers. A
// policy that no tenant uses yet may name the servers of all tenants.
struct policy_names policy_names_of(const struct config *config, const char *policy);
void policy_names_release(struct policy_names *names);

#endif
