// Owns the provider chains of a configuration. A chain lives as long as a request uses it.
#include "config/chains.h"
#include "base/mem.h"
#include "config/config.h"
#include "tables.h"
#include <stdlib.h>

struct config_chains {
    unsigned refs;
    const struct config *config;   // that they point into
    struct provider_chain **each;  // without gaps: the one at the top, then those of listeners; NULL at the end
    struct provider_chain **of;    // by listener
};

static bool add(struct config_chains *chains, const struct auth_config *auth, size_t *count,
                const struct provider_world *world, struct err *err)
{
    return (chains->each[*count] = provider_chain_new(auth, world, err)) && ++*count;
}

struct config_chains *config_chains_new(const struct config *config, const struct provider_world *world,
                                        struct err *err)
{
    const struct config_listener *listeners = config->listen.at;
    struct config_chains *chains = mem_new(struct config_chains);
    size_t count = 0;
    chains->refs = 1;
    chains->config = config_ref(config);
    chains->each = mem_alloc((config->listen.count + 2) * sizeof(struct provider_chain *));
    chains->of = mem_alloc((config->listen.count + 1) * sizeof(struct provider_chain *));
    bool ok = add(chains, &config->auth, &count, world, err);
    for (size_t i = 0; ok && i < config->listen.count; i++) {
        const struct auth_config *auth = config_listener_auth(config, &listeners[i]);
        ok = auth == &config->auth || add(chains, auth, &count, world, err);
        chains->of[i] = chains->each[auth == &config->auth || !ok ? 0 : count - 1];
    }
    if (ok)
        return chains;
    config_chains_unref(chains);
    return NULL;
}

struct config_chains *config_chains_ref(struct config_chains *chains)
{
    chains->refs++;
    return chains;
}

void config_chains_unref(struct config_chains *chains)
{
    if (!chains || --chains->refs)
        return;
    for (size_t i = 0; chains->each[i]; i++)
        provider_chain_free(chains->each[i]);
    config_unref(chains->config);
    free(chains->each);
    free(chains->of);
    free(chains);
}

struct provider_chain *config_chains_of(const struct config_chains *chains, const struct config *config,
                                        const struct config_listener *listener)
{
    const struct config_listener *first = config->listen.at;
    return listener ? chains->of[listener - first] : chains->each[0];
}

struct provider_chain *config_chains_at(const struct config_chains *chains, size_t i) { return chains->each[i]; }
