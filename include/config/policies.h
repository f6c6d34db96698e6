// The policies of all tenants: where they are, how they are read, and which are in force. Tenant 0 is `default`.
#ifndef CONFIG_POLICIES_H
#define CONFIG_POLICIES_H

#include "auth/policy/policy.h"
#include "config/config.h"

// The path of a tenant's policy, which the caller frees. NULL: the tenant does not have a policy.
char *config_policies_path(const struct config *config, size_t tenant);
// Reads, compiles and tests the policy at this path, with the names of this configuration. From any thread.
struct policy *config_policies_read(const struct config *config, const char *path, struct policy_findings *findings,
                                    struct err *err) MUST_CHECK;

#endif
