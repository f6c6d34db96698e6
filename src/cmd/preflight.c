// Owns the checks before a gateway serves: policies, providers, certificates, keys, the servers' programs, and the
// limit of descriptors.
//
// `serve` starts with these functions and `config check` calls the same ones, so a file that passes the check also
// serves. They create no files and open no ports: the check may run beside a gateway, and as another user.
#include "preflight.h"
#include "auth/caller/provider.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/chains.h"
#include "config/policies.h"
#include "front/http.h"
#include "loop/program.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define SERVER_DESCRIPTORS 5  // of one process or connection
#define OWN_DESCRIPTORS 64

// ---- policies and providers -----------------------------------------------------------------

// Tenants without a policy of their own use the one at the top, which is checked once.
static bool check_policies(const struct config *config, struct err *err)
{
    const struct config_tenant *tenants = config->tenants.at;
    bool ok = true;
    for (size_t i = 0; ok && i <= config->tenants.count; i++) {
        if (i && !tenants[i - 1].policy)
            continue;
        struct policy_findings findings = {0};
        struct err why = {0};
        char *path = config_policies_path(config, i);
        struct policy *policy = path ? config_policies_read(config, path, &findings, &why) : NULL;
        ok = !path || policy;
        if (!ok)
            (void)err_set(err, ERR_CONFIG, "%s%s/policy: %s", i ? "/tenants/" : "", i ? tenants[i - 1].name : "",
                          why.detail);
        policy_findings_release(&findings);
        policy_unref(policy);
        free(path);
    }
    return ok;
}

static bool check_chains(const struct config *config, struct err *err)
{
    struct loop *loop = loop_new(err);
    struct http_client *http = loop ? http_client_new(loop, err) : NULL;
    struct provider_world world = {loop, http, config->folder};
    struct config_chains *chains = http ? config_chains_new(config, &world, err) : NULL;
    bool ok = chains != NULL;
    config_chains_unref(chains);
    http_client_free(http);
    loop_free(loop);
    return ok;
}

// ---- servers --------------------------------------------------------------------------------

static const struct option_items *servers_of(const struct config *config, size_t tenant)
{
    const struct config_tenant *tenants = config->tenants.at;
    return tenant ? &tenants[tenant - 1].servers : &config->servers;
}

bool preflight_needs_store(const struct config *config)
{
    bool needed = false;
    for (size_t tenant = 0; tenant <= config->tenants.count; tenant++) {
        const struct option_items *items = servers_of(config, tenant);
        const struct server *servers = items->at;
        for (size_t i = 0; i < items->count; i++) {
            const struct access_options *auth = &servers[i].auth;
            bool asks = access_options_mode_asks((enum access_mode)auth->mode) && access_options_client_moves(auth);
            needed |= (auth->mode == ACCESS_SHARED || auth->mode == ACCESS_USER || asks) && !servers[i].disabled;
        }
    }
    return needed;
}

static bool check_readable(const char *path, struct err *err)
{
    return !path || access(path, R_OK) == 0 || err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
}

// Returns the invalid member, or NULL.
static const char *check_server(const struct server *server, struct err *err)
{
    if (server->disabled)
        return NULL;
    if (server->command && !program_check(server->command, server->cwd, err))
        return "command";
    if (!check_readable(server->auth.private_key_file, err))
        return "auth/private_key_file";
    return check_readable(server->auth.assertion.key_file, err) ? NULL : "auth/assertion/key_file";
}

void preflight_servers(const struct config *config, preflight_server_fn *report, void *arg)
{
    const struct config_tenant *tenants = config->tenants.at;
    for (size_t tenant = 0; tenant <= config->tenants.count; tenant++) {
        const struct option_items *items = servers_of(config, tenant);
        const struct server *servers = items->at;
        for (size_t i = 0; i < items->count; i++) {
            struct err why = {0};
            struct buf place = {0};
            const char *member = check_server(&servers[i], &why);
            if (tenant)
                buf_printf(&place, "/tenants/%s", tenants[tenant - 1].name);
            buf_printf(&place, "/mcpServers/%s/%s", servers[i].name, member ? member : "");
            if (member)
                report(arg, buf_text(&place), &why);
            buf_release(&place);
        }
    }
}

// ---- the whole check ------------------------------------------------------------------------

static bool check_listeners(const struct config *config, struct err *err)
{
    const struct config_listener *listeners = config->listen.at;
    bool ok = true;
    for (size_t i = 0; ok && i < config->listen.count; i++)
        ok = http_face_check(config, &listeners[i], err);
    return ok;
}

static bool check_host(const struct config *config, struct err *err)
{
    return check_chains(config, err) && check_listeners(config, err) &&
           (!preflight_needs_store(config) || vault_check(&config->vault, err));
}

bool preflight_check(const struct config *config, bool offline, struct err *err)
{
    return check_policies(config, err) && (offline || check_host(config, err));
}

// ---- limits of the process ------------------------------------------------------------------

// Each connection takes a descriptor, and the usual soft limit of 1024 is for programs that use select().
void preflight_raise_descriptors(const struct config *config)
{
    struct rlimit limit;
    size_t listeners = config->listen.count ? config->listen.count : 1;
    int64_t needed = (int64_t)listeners * http_face_descriptors(config->limits.connections) +
                     (int64_t)config->servers.count * SERVER_DESCRIPTORS + OWN_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (before != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        log_debug("descriptor limit raised", LOG_INT("from", (int64_t)before), LOG_INT("to", (int64_t)limit.rlim_max));
    if (limit.rlim_max != RLIM_INFINITY && (int64_t)limit.rlim_max < needed)
        log_warn("the descriptor limit is too low for limits.connections: lower that, or raise the hard limit "
                 "(LimitNOFILE= of a systemd unit, ulimit -Hn)",
                 LOG_INT("hard_limit", (int64_t)limit.rlim_max), LOG_INT("needed", needed));
}
