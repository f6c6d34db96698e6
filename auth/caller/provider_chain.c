// Owns the chain of providers of a listener: asking them in order, and routing later questions to the right one.
#include "base/clock.h"
#include "base/mem.h"
#include "provider_table.h"
#include <stdlib.h>

struct provider_chain {
    struct chain_link {
        const struct provider *provider;
        const char *name;
        void *state;
    } * links;
    size_t count;
    const char *headers[CREDENTIAL_HEADERS_MAX + 1];
    size_t header_count;
    const char **issuers, **scopes;  // NULL at the end
};

const char *const *provider_chain_headers(const struct provider_chain *chain) { return chain->headers; }
const char *const *provider_chain_issuers(const struct provider_chain *chain) { return chain->issuers; }
const char *const *provider_chain_scopes(const struct provider_chain *chain) { return chain->scopes; }

static const char **add_text(const char **list, const char *text)
{
    size_t count = 0;
    for (; list && list[count]; count++)
        if (strcmp(list[count], text) == 0)
            return list;
    list = mem_resize(list, (count + 2) * sizeof *list);
    list[count] = text;
    list[count + 1] = NULL;
    return list;
}

static bool add_link(struct provider_chain *chain, const struct provider_config *config,
                     const struct provider_world *world, struct err *err)
{
    struct chain_link *link = &chain->links[chain->count++];
    link->provider = &provider_table[config->type];
    link->name = provider_name(config);
    if (config->issuer)
        chain->issuers = add_text(chain->issuers, config->issuer);
    for (char **scope = config->required_scopes; scope && *scope; scope++)
        chain->scopes = add_text(chain->scopes, *scope);
    if (!(link->state = link->provider->open(config, world, err)))
        return false;
    if (link->provider->headers)  // at most one provider in a chain has headers, see clash()
        chain->header_count = link->provider->headers(link->state, chain->headers, 0);
    return true;
}

struct provider_chain *provider_chain_new(const struct auth_config *config, const struct provider_world *world,
                                          struct err *err)
{
    const struct provider_config *entries = config->providers.at;
    struct provider_chain *chain = mem_new(struct provider_chain);
    chain->links = mem_alloc((config->providers.count + 1) * sizeof *chain->links);
    chain->issuers = mem_alloc(sizeof *chain->issuers);
    chain->scopes = mem_alloc(sizeof *chain->scopes);
    for (size_t i = 0; i < config->providers.count; i++)
        if (!add_link(chain, &entries[i], world, err)) {
            provider_chain_free(chain);
            return NULL;
        }
    return chain;
}

void provider_chain_free(struct provider_chain *chain)
{
    if (!chain)
        return;
    for (size_t i = 0; i < chain->count; i++)
        if (chain->links[i].state)
            chain->links[i].provider->close(chain->links[i].state);
    free(chain->links);
    free(chain->issuers);
    free(chain->scopes);
    free(chain);
}

static bool another_follows(const struct provider_chain *chain, size_t i)
{
    for (size_t k = i + 1; k < chain->count; k++)
        if (chain->links[k].provider == chain->links[i].provider)
            return true;
    return false;
}

// Asks one link. FOREIGN becomes PASS if another provider of the type follows, REJECT otherwise.
static enum provider_verdict ask(const struct provider_chain *chain, size_t i, const struct credentials *credentials,
                                 struct provider_wait *wait, struct identity **out)
{
    const struct chain_link *link = &chain->links[i];
    enum provider_verdict verdict = link->provider->authenticate(link->state, credentials, wait, out);
    if (verdict != PROVIDER_FOREIGN)
        return verdict;
    return another_follows(chain, i) ? PROVIDER_PASS : PROVIDER_REJECT;
}

static enum provider_verdict refuse(const struct chain_link *link, enum provider_verdict verdict, struct err *err)
{
    switch (verdict) {
    case PROVIDER_MALFORMED:
        (void)err_set(err, ERR_BAD_FRAMING,
                      "provider %s: the identity headers are duplicated, misspelled or not from a trusted proxy",
                      link->name);
        break;
    case PROVIDER_SCOPE:
        (void)err_set(err, ERR_SCOPE, "provider %s: the token lacks a required scope", link->name);
        break;
    case PROVIDER_UNAVAILABLE:
        (void)err_set(err, ERR_AUTH_UNAVAILABLE, "provider %s cannot verify credentials now", link->name);
        break;
    case PROVIDER_ACCEPT:
    case PROVIDER_WAIT:
    case PROVIDER_PASS:
    case PROVIDER_FOREIGN:
    case PROVIDER_REJECT:
        (void)err_set(err, ERR_UNAUTHENTICATED, "provider %s rejected the credential", link->name);
        return PROVIDER_REJECT;
    }
    return verdict;
}

enum provider_verdict provider_chain_authenticate(struct provider_chain *chain, const struct credentials *credentials,
                                                  struct provider_wait *wait, struct identity **out, struct err *err)
{
    for (size_t i = 0; chain && i < chain->count; i++) {
        const struct chain_link *link = &chain->links[i];
        enum provider_verdict verdict =
            link->provider->inspect ? link->provider->inspect(link->state, credentials) : PROVIDER_PASS;
        if (verdict != PROVIDER_PASS)
            return refuse(link, verdict, err);
    }
    for (size_t i = 0; chain && i < chain->count; i++) {
        enum provider_verdict verdict = ask(chain, i, credentials, wait, out);
        if (verdict == PROVIDER_ACCEPT || verdict == PROVIDER_WAIT)
            return verdict;
        if (verdict != PROVIDER_PASS)
            return refuse(&chain->links[i], verdict, err);
    }
    (void)err_set(err, ERR_UNAUTHENTICATED, "no provider accepts this kind of credential");
    return PROVIDER_REJECT;
}

bool provider_chain_poll(struct provider_chain *chain, struct err *err)
{
    bool changed = false;
    for (size_t i = 0; i < chain->count; i++)
        if (chain->links[i].provider->poll)
            changed = chain->links[i].provider->poll(&chain->links[i].state, err) || changed;
    return changed;
}

static const struct chain_link *link_of(const struct provider_chain *chain, const struct identity *identity)
{
    for (size_t i = 0; i < chain->count; i++)
        if (strcmp(chain->links[i].name, identity->provider) == 0)
            return &chain->links[i];
    return NULL;
}

bool provider_chain_knows(const struct provider_chain *chain, const struct identity *identity)
{
    return link_of(chain, identity) != NULL;
}

bool provider_chain_stands(struct provider_chain *chain, const struct identity *identity)
{
    const struct chain_link *link = link_of(chain, identity);
    if (!link || (identity->expires && identity->expires <= clock_wall_s()))
        return false;
    return !link->provider->stands || link->provider->stands(link->state, identity);
}

bool provider_chain_health(const struct provider_chain *chain, size_t i, struct provider_health *out)
{
    if (i >= chain->count)
        return false;
    *out = (struct provider_health){.name = chain->links[i].name, .keys_age_ms = -1};
    if (chain->links[i].provider->health)
        chain->links[i].provider->health(chain->links[i].state, out);
    return true;
}

bool provider_chain_is_proxy(struct provider_chain *chain, const struct peer *peer)
{
    for (size_t i = 0; chain && i < chain->count; i++)
        if (chain->links[i].provider->is_proxy && chain->links[i].provider->is_proxy(chain->links[i].state, peer))
            return true;
    return false;
}

bool provider_chain_relays(struct provider_chain *chain, const struct credentials *credentials)
{
    for (size_t i = 0; chain && i < chain->count; i++)
        if (chain->links[i].provider->relays && chain->links[i].provider->relays(chain->links[i].state, credentials))
            return true;
    return false;
}
