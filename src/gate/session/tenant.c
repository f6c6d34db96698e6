// Owns tenants: lookup by name, their limits from the configuration, and their policies, each with the memo that caches its
// decisions.
#include "base/mem.h"
#include "gate/session/server_runtime.h"
#include "room.h"
#include <stdlib.h>

struct tenant *tenant_new(struct gate *gate, const char *name)
{
    struct tenant *tenant = mem_new(struct tenant);
    tenant->gate = gate;
    tenant->refs = 1;
    tenant->name = mem_string(name);
    list_append(&gate->tenants, &tenant->node);
    return tenant;
}

struct tenant *tenant_ref(struct tenant *tenant)
{
    tenant->refs++;
    return tenant;
}

void tenant_unref(struct tenant *tenant)
{
    if (!tenant || --tenant->refs)
        return;
    tenant_set_policy(tenant, NULL);
    server_runtime_forget(tenant, true);
    config_unref(tenant->config);
    limit_unref(tenant->limit);
    budget_unref(tenant->memory);
    free(tenant->name);
    free(tenant);
}

struct tenant *tenant_find(const struct gate *gate, const char *name)
{
    tenant_each(node, gate)
        if (strcmp(tenant_at(node)->name, name) == 0)
            return tenant_at(node);
    return NULL;
}

void tenant_configure(struct tenant *tenant, size_t number)
{
    const struct config *config = config_ref(tenant->gate->config), *old = tenant->config;
    const struct config_tenant *others = config->tenants.at, *own = number ? &others[number - 1] : NULL;
    const struct option_items *rates = own ? &own->limits.rates : &config->limits.rates;
    tenant->servers = own ? &own->servers : &config->servers;
    tenant->profiles = own ? &own->profiles : &config->profiles;
    tenant->session_limit = own ? own->limits.sessions : config->limits.sessions;
    tenant->process_limit = own ? own->limits.processes : config->limits.processes;
    struct limit *before = tenant->limit;
    tenant->limit = limit_renew(before, rates);
    limit_unref(before);
    tenant->config = config;
    config_unref(old);
    server_runtime_forget(tenant, false);
    memory_set_tenant(tenant, own ? own->limits.memory : 0);
}

void tenant_remove(struct tenant *tenant)
{
    list_remove(&tenant->node);
    tenant_unref(tenant);
}

void tenant_set_policy(struct tenant *tenant, struct policy *policy)
{
    struct policy *old = tenant->policy;
    policy_memo_free(tenant->memo);
    tenant->policy = policy ? policy_ref(policy) : NULL;
    tenant->memo = policy ? policy_memo_new(policy) : NULL;
    policy_unref(old);
}
