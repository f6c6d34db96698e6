// Owns tenants in the configuration: their option rows, their checks, and looking up their servers.
#include "catalog/profile.h"
#include "tables.h"

#define AT(member) offsetof(struct config_tenant, member)
static const struct option tenant_rows[] = {
    {.name = "mcpServers",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(servers),
     .fallback = "{}",
     .sub = &server_options,
     .help = "The servers of this tenant. Its callers cannot use servers of other tenants."},
    {.name = "profiles",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(profiles),
     .fallback = "{}",
     .sub = &profile_options,
     .help = "The profiles of this tenant, by name."},
    {.name = "policy",
     .type = OPTION_STRING,
     .offset = AT(policy),
     .help = "The policy file or folder of this tenant; the top-level `policy` if absent."},
    {.name = "limits",
     .type = OPTION_OBJECT,
     .offset = AT(limits),
     .sub = &config_limits_of_tenant,
     .help = "The limits of this tenant."},
    {0},
};
#undef AT

bool config_tenant_check_prefixes(const struct option_items *items, const struct option_place *place, struct err *err)
{
    const struct server *servers = items->at;
    for (size_t i = 0; i < items->count; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = servers[i].prefix ? servers[i].prefix : servers[i].name;
            const char *b = servers[k].prefix ? servers[k].prefix : servers[k].name;
            if (*a && strcmp(a, b) == 0)
                return err_set(err, ERR_CONFIG, "%s: %s/mcpServers/%s/prefix: \"%s\" is used by \"%s\" already",
                               place->file, place->path, servers[i].name, a, servers[k].name);
        }
    return true;
}

static bool check_tenant(void *object, const struct option_place *place, struct err *err)
{
    const struct config_tenant *tenant = object;
    size_t len = strlen(tenant->name);
    if (len == 0 || len > 64 || strcmp(tenant->name, "default") == 0 || strpbrk(tenant->name, "/ "))
        return err_set(err, ERR_CONFIG,
                       "%s: %s: a tenant's name has 1 to 64 characters without '/' and blanks, and is not \"default\", "
                       "which is the top of the file",
                       place->file, *place->path ? place->path : "/");
    return config_tenant_check_prefixes(&tenant->servers, place, err) &&
           profile_check_all(&tenant->profiles, &tenant->servers, place, err) &&
           config_rates_check(&tenant->limits.rates, &tenant->servers, place, err);
}

const struct option_table config_tenant_options = {"A tenant (tenants.NAME)", sizeof(struct config_tenant), tenant_rows,
                                                   check_tenant};

const char *config_tenant_name(const struct config *config, size_t i)
{
    const struct config_tenant *tenants = config->tenants.at;
    return i ? tenants[i - 1].name : "default";
}

const struct option_items *config_tenant_servers(const struct config *config, size_t i)
{
    const struct config_tenant *tenants = config->tenants.at;
    return i ? &tenants[i - 1].servers : &config->servers;
}

const struct option_items *config_tenant_find(const struct config *config, const char *tenant)
{
    for (size_t i = 0; i <= config->tenants.count; i++)
        if (strcmp(config_tenant_name(config, i), tenant) == 0)
            return config_tenant_servers(config, i);
    return NULL;
}

const struct server *config_tenant_find_server(const struct config *config, const char *tenant, const char *name)
{
    const struct option_items *servers = config_tenant_find(config, tenant);
    return servers ? server_find(servers, span_of(name)) : NULL;
}
