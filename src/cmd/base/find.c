// Owns finding the server that a command names, and suggestions if it does not exist.
#include "find.h"
#include "base/mem.h"
#include <stdlib.h>
#include <string.h>

// The nearest of the tenants' names, or of their servers' names. NULL: none is similar. The name is the
// configuration's.
static const char *nearest(const struct config *config, const char *tenant, const char *server)
{
    size_t count = 0;
    const char **names = mem_alloc(sizeof *names);
    for (size_t i = 0; i <= config->tenants.count; i++) {
        const struct option_items *items = config_tenant_servers(config, i);
        const struct server *servers = items->at;
        names = mem_resize(names, (count + items->count + 2) * sizeof *names);
        if (!server)
            names[count++] = config_tenant_name(config, i);
        for (size_t k = 0;
             server && (!tenant || strcmp(tenant, config_tenant_name(config, i)) == 0) && k < items->count; k++)
            names[count++] = servers[k].name;
    }
    names[count] = NULL;
    const char *near = option_nearest(server ? server : tenant, names);
    free(names);
    return near;
}

bool find_check_tenant(const struct config *config, const char *tenant, struct err *err)
{
    if (!tenant || config_tenant_find(config, tenant))
        return true;
    const char *near = nearest(config, tenant, NULL);
    return err_set(err, ERR_CONFIG, "tenant \"%s\" does not exist in the configuration%s%s%s", tenant,
                   near ? "; did you mean \"" : "", near ? near : "",
                   near ? "\"?" : "; 'postern config show' lists the tenants");
}

// Suggests another tenant that has the server; else a server with a similar name.
void find_set_unknown(const struct config *config, const char *tenant, const char *name, struct err *err)
{
    for (size_t i = 0; i <= config->tenants.count; i++)
        if (config_tenant_find_server(config, config_tenant_name(config, i), name)) {
            (void)err_set(err, ERR_CONFIG, "tenant \"%s\" has no server \"%s\", but tenant \"%s\" has: add --tenant %s",
                          tenant, name, config_tenant_name(config, i), config_tenant_name(config, i));
            return;
        }
    const char *near = nearest(config, tenant, name);
    (void)err_set(err, ERR_CONFIG, "server \"%s\" does not exist in the configuration%s%s%s", name,
                  near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "; 'postern servers' lists them");
}

const struct server *find_server(const struct config *config, const char *tenant, const char *name, struct err *err)
{
    if (!find_check_tenant(config, tenant, err))
        return NULL;
    const struct server *found = config_tenant_find_server(config, tenant, name);
    if (!found)
        find_set_unknown(config, tenant, name, err);
    return found;
}
