// The policies that are in force, and their reload on a worker.
#ifndef CONFIG_POLICIES_IN_FORCE_H
#define CONFIG_POLICIES_IN_FORCE_H

#include "config/policies.h"
#include "config/reload.h"

struct offload;
struct policies;

// The policy of a tenant, read from its path; without one, the policy that allows everything. From any thread.
struct policy *config_policies_of(const struct config *config, size_t tenant, struct policy_findings *findings,
                                  struct err *err) MUST_CHECK;
// Reads the policies of all tenants. NULL: one of them is not valid, or cannot be read.
struct policies *policies_new(const struct reload_spec *spec, struct offload *pool, struct err *err) MUST_CHECK;
// Those of another configuration, which were read already: of each tenant, in its order.
struct policies *policies_of(const struct reload_spec *spec, const struct config *config, struct offload *pool,
                             struct policy *const *in_force);
struct policy *const *policies_in_force(const struct policies *policies);
// Looks for files that changed, or reads all (`asked`). What is read is reported to the events of the reload later.
void policies_poll(struct policies *policies, bool asked);
bool policies_pending(const struct policies *policies);  // some file could not be read, which may pass by itself
void policies_put_paths(const struct policies *policies, void (*visit)(void *arg, const char *path), void *arg);
// Reports nothing more, and is in this list until it is freed: when its jobs are done, at the end of a turn of the loop.
void policies_close(struct policies *policies, struct list *closing);
struct policies *policies_at(struct list *node);  // of that list
void policies_free(struct policies *policies);    // its jobs must be done

#endif
