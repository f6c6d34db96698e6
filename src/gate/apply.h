// The configuration in force, as the gate's own objects have it.
#ifndef GATE_APPLY_H
#define GATE_APPLY_H

struct gate;
struct policy;

// Sets up tenants, limits and keys after gate->config was set or replaced. `policies`: of each tenant, in the order of the
// configuration.
void apply_configuration(struct gate *gate, struct policy *const *policies);

// Which servers there may be has changed, or links were retired: links, scopes and sessions follow.
void apply_servers(struct gate *gate);

#endif
