// Owns the names that a policy is checked against: one definition for `serve` and `policy check`.
#include "config/policy_names.h"
#include "base/mem.h"
#include <stdlib.h>

static const char **add(const char **list, const char *name)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    list = mem_resize(list, (count + 2) * sizeof *list);
    list[count] = name;
    list[count + 1] = NULL;
    return list;
}

static const char **add_servers(const char **list, const struct option_items *items)
{
    const struct server *servers = items->at;
    for (size_t i = 0; i < items->count; i++)
        list = add(list, servers[i].name);
    return list;
}

static const char **add_providers(const char **list, const struct auth_config *auth)
{
    const struct provider_config *entries = auth->providers.at;
    for (size_t i = 0; i < auth->providers.count; i++)
        list = add(list, provider_name(&entries[i]));
    return list;
}

// `default` is tenant 0.
static const struct config_tenant *tenant_at(const struct config *config, size_t i)
{
    const struct config_tenant *tenants = config->tenants.at;
    return i ? &tenants[i - 1] : NULL;
}

static bool is_file(const char *a, const char *b)
{
    char *one = realpath(a, NULL), *other = realpath(b, NULL);
    bool same = one && other ? strcmp(one, other) == 0 : strcmp(a, b) == 0;
    free(one);
    free(other);
    return same;
}

static bool has_policy(const struct config *config, const struct config_tenant *tenant, const char *policy)
{
    const char *own = tenant && tenant->policy ? tenant->policy : config->policy;
    if (!own)
        return false;
    char *path = config_file(config, own);
    bool same = is_file(path, policy);
    free(path);
    return same;
}

struct policy_names policy_names_of(const struct config *config, const char *policy)
{
    const struct config_listener *listeners = config->listen.at;
    struct policy_names names = {0};
    bool known = false;
    for (size_t i = 0; i <= config->tenants.count; i++)
        known = known || has_policy(config, tenant_at(config, i), policy);
    names.servers = mem_alloc(sizeof(char *));
    for (size_t i = 0; i <= config->tenants.count; i++) {
        const struct config_tenant *tenant = tenant_at(config, i);
        names.tenants = add(names.tenants, config_tenant_name(config, i));
        if (!known || has_policy(config, tenant, policy))
            names.servers = add_servers(names.servers, config_tenant_servers(config, i));
    }
    names.providers = add_providers(NULL, &config->auth);
    for (size_t i = 0; i < config->listen.count; i++)
        names.providers = add_providers(names.providers, &listeners[i].auth);
    return names;
}

void policy_names_release(struct policy_names *names)
{
    free(names->servers);
    free(names->tenants);
    free(names->providers);
    *names = (struct policy_names){0};
}
