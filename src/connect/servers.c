// Owns the selection of servers that users connect their accounts to: those of their tenant with auth mode `per_user`.
#include "state.h"

static bool is_connected_to(const struct server *server)
{
    return server->auth.mode == ACCESS_USER && !server->disabled;
}

const struct server *connect_servers_next(const struct config *config, const char *tenant, size_t *at)
{
    const struct option_items *items = config_tenant_find(config, tenant);
    const struct server *servers = items ? items->at : NULL;
    while (items && *at < items->count) {
        const struct server *server = &servers[(*at)++];
        if (is_connected_to(server))
            return server;
    }
    return NULL;
}

const struct server *connect_servers_find(const struct config *config, const char *tenant, struct span name)
{
    const struct option_items *items = config_tenant_find(config, tenant);
    const struct server *server = items ? server_find(items, name) : NULL;
    return server && is_connected_to(server) ? server : NULL;
}

bool connect_servers_needed(const struct config *config)
{
    for (size_t i = 0, at = 0; i <= config->tenants.count; i++, at = 0)
        if (connect_servers_next(config, config_tenant_name(config, i), &at))
            return true;
    return false;
}
