// The configuration in force, as the gate's own objects have it.
#ifndef GATE_APPLY_H
#define GATE_APPLY_H

struct gate;
struct policy;

// gate->config is another one now, or the first: tenants, limits and keys as it says. `policies`: of each tenant, in its order.
void apply_configuration(struct gate *gate, struct policy *const *policies);

// Which servers there may be has changed, or links were retired: links, scopes and sessions follow.
void apply_servers(struct gate *gate);

#endif
