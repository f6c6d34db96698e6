// The policies that are in force, and their reload on a worker.
#ifndef CONFIG_POLICIES_IN_FORCE_H
#define CONFIG_POLICIES_IN_FORCE_H

#include "config/policies.h"
#include "config/reload.h"

struct offload;
struct policies;

// The policy of a tenant, read from its path. Without a path: the policy that allows everything. From any thread.
struct policy *config_policies_of(const struct config *config, size_t tenant, struct policy_findings *findings,
                                  struct err *err) MUST_CHECK;
// Reads the policies of all tenants. NULL: one of them is not valid, or cannot be read.
struct policies *policies_new(const struct reload_spec *spec, struct offload *pool, struct err *err) MUST_CHECK;
// For another configuration, whose policies were read already: `in_force` has one for each tenant, in its order, and `seen` the
// fingerprints of their files before they were read. One that changed since then is read by the next policies_poll().
struct policies *policies_of(const struct reload_spec *spec, const struct config *config, struct offload *pool,
                             struct policy *const *in_force, const uint64_t *seen);
struct policy *const *policies_in_force(const struct policies *policies);
// Reads the files that changed, or all files (`asked`). The results are reported later, to the events of the reload.
void policies_poll(struct policies *policies, bool asked);
bool policies_pending(
    const struct policies *policies);  // a file could not be read, for a reason that may pass by itself
void policies_put_paths(const struct policies *policies, void (*visit)(void *arg, const char *path), void *arg);
// Reports nothing more. The set stays in the list until it is freed at the end of a turn, after its jobs are done.
void policies_close(struct policies *policies, struct list *closing);
struct policies *policies_at(struct list *node);  // of that list
void policies_free(struct policies *policies);    // its jobs must be done

#endif
