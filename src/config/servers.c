// Owns what servers require of the rest of the configuration: providers that authenticate callers, and a public URL.
#include "servers.h"
#include "tables.h"
#include <string.h>

// A tenant's servers may be in a file of their own; the options that they require are in the configuration file, `top`.
struct servers_place {
    const struct config *config;
    const char *top, *file, *path;
};

static bool lacks(const struct servers_place *at, const struct server *server, const char *member, const char *what,
                  struct err *err)
{
    bool same = strcmp(at->top, at->file) == 0;
    return err_set(err, ERR_CONFIG, "%s: %s/mcpServers/%s/auth/%s: needs %s%s%s", at->file, at->path, server->name,
                   member, what, same ? "" : ", in ", same ? "" : at->top);
}

// An identity assertion names the gateway as its issuer and the caller as its subject, so it needs a URL and a
// provider.
static bool check_assertion(const struct servers_place *at, const struct server *server, struct err *err)
{
    if (!server->auth.assertion.key_file)
        return true;
    if (!at->config->public_url)
        return lacks(at, server, "assertion", "/public_url, as the issuer", err);
    return config_listener_proves(at->config) ||
           lacks(at, server, "assertion", "a provider in /auth/providers that authenticates callers", err);
}

static bool has_jwt(const struct auth_config *auth)
{
    const struct provider_config *providers = auth->providers.at;
    for (size_t i = 0; i < auth->providers.count; i++)
        if (strcmp(provider_type(&providers[i]), "jwt") == 0)
            return true;
    return false;
}

static bool takes_jwts(const struct config *config)
{
    const struct config_listener *listeners = config->listen.at;
    bool takes = has_jwt(&config->auth);
    for (size_t i = 0; !takes && i < config->listen.count; i++)
        takes = has_jwt(&listeners[i].auth);
    return takes;
}

// A user's grant needs an authenticated user: otherwise all callers would share it.
static bool check_own_grants(const struct servers_place *at, const struct server *server, struct err *err)
{
    if (server->auth.mode != ACCESS_USER)
        return true;
    if (!config_listener_proves(at->config))
        return lacks(at, server, "mode: \"per_user\"", "a provider in /auth/providers that authenticates callers", err);
    return config_hosted_url_ok(at->config) ||
           err_set(err, ERR_CONFIG,
                   "%s: /public_url: users connect accounts there (server \"%s\" in %s has auth mode per_user), so it "
                   "must be an https:// URL, or http:// to this host only",
                   at->top, server->name, at->file);
}

static bool check_caller(const struct servers_place *at, const struct server *server, struct err *err)
{
    return !access_options_takes_caller(&server->auth) || takes_jwts(at->config) ||
           lacks(at, server, "subject: \"caller\"", "the provider \"jwt\" in /auth/providers", err);
}

static bool check_servers(const struct servers_place *at, const struct option_items *items, struct err *err)
{
    const struct server *servers = items->at;
    for (size_t i = 0; i < items->count; i++)
        if (!servers[i].disabled && (!check_own_grants(at, &servers[i], err) || !check_caller(at, &servers[i], err) ||
                                     !check_assertion(at, &servers[i], err)))
            return false;
    return true;
}

bool config_servers_check(const struct config *config, const char *file, struct err *err)
{
    const struct config_tenant *tenants = config->tenants.at;
    bool ok = check_servers(&(struct servers_place){config, file, file, ""}, &config->servers, err);
    for (size_t i = 0; ok && i < config->tenants.count; i++) {
        struct buf path = {0};
        buf_printf(&path, "/tenants/%s", tenants[i].name);
        ok = check_servers(&(struct servers_place){config, file, file, buf_text(&path)}, &tenants[i].servers, err);
        buf_release(&path);
    }
    return ok;
}

bool config_servers_check_tenants(const struct config *config, size_t first, const char *folder, const char *top,
                                  struct err *err)
{
    const struct config_tenant *tenants = config->tenants.at;
    bool ok = true;
    for (size_t i = first; ok && i < config->tenants.count; i++) {
        struct buf file = {0};
        buf_printf(&file, "%s/%s.json", folder, tenants[i].name);
        struct servers_place at = {config, top, buf_text(&file), ""};
        ok = check_servers(&at, &tenants[i].servers, err);
        buf_release(&file);
    }
    return ok;
}
