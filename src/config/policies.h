// The policies that are in force, and their reload on a worker.
#ifndef CONFIG_POLICIES_IN_FORCE_H
#define CONFIG_POLICIES_IN_FORCE_H

#include "config/policies.h"
#include "config/reload.h"

struct policies;

// Reads the policies of all tenants. NULL: one of them is not valid, or cannot be read.
struct policies *policies_new(const struct reload_spec *spec, struct err *err) MUST_CHECK;
struct policy *const *policies_in_force(const struct policies *policies);
// Looks for files that changed, or reads all (`asked`). What is read is reported to the events of the reload later.
void policies_poll(struct policies *policies, bool asked);
void policies_free(struct policies *policies);

#endif
