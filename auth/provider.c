// Owns the table of providers and the chain through it.
#include "auth/provider.h"
#include "base/mem.h"
#include "provider_bearer.h"
#include "provider_forwarded.h"
#include "provider_jwt.h"
#include "provider_none.h"
#include <stdlib.h>
#include <time.h>

static const struct provider {
    const char *name;
    bool proves;  // who calls, rather than that anybody may
    // What it keeps between calls; NULL functions: nothing.
    void *(*open)(const struct provider_config *config, const struct provider_world *world, struct err *err);
    void (*close)(void *state);
    enum provider_verdict (*authenticate)(void *state, const struct credentials *credentials,
                                          struct provider_wait *wait, struct identity **out);
    // Which headers it wants to see; gets where in the list they begin, returns how many.
    size_t (*headers)(void *state, const char **names, size_t first);
    bool (*poll)(void **state, struct err *err);
    bool (*stands)(void *state, const struct identity *identity);
    bool (*relays)(void *state, const struct credentials *credentials);  // from a proxy that proved itself
} providers[] = {
    {.name = "none", .open = provider_none_open, .close = provider_none_close, .authenticate = provider_none},
    {.name = "bearer",
     .proves = true,
     .open = provider_bearer_open,
     .close = provider_bearer_close,
     .authenticate = provider_bearer,
     .poll = provider_bearer_poll,
     .stands = provider_bearer_stands},
    {.name = "forwarded-user",
     .proves = true,
     .open = provider_forwarded_open,
     .close = provider_forwarded_close,
     .authenticate = provider_forwarded,
     .headers = provider_forwarded_headers,
     .relays = provider_forwarded_relays},
    {.name = "jwt",
     .proves = true,
     .open = provider_jwt_open,
     .close = provider_jwt_close,
     .authenticate = provider_jwt},
};

static const char *const names[] = {"none", "bearer", "forwarded-user", "jwt", NULL};

#define AT(member) offsetof(struct provider_config, member)
static const struct option provider_rows[] = {
    {.name = "type",
     .type = OPTION_ENUM,
     .offset = AT(type),
     .choices = names,
     .fallback = "\"none\"",
     .help = "`none`: anybody who reaches the listener, which must be on loopback. `bearer`: tokens of `postern "
             "token`. `forwarded-user`: headers of a trusted proxy in front. `jwt`: access tokens of an issuer."},
    {.name = "i_know_this_is_open",
     .type = OPTION_BOOL,
     .offset = AT(open),
     .fallback = "false",
     .help = "`none`: listen beyond loopback too, where anybody who reaches the port is let in. `public_url` or "
             "`allowed_hosts` must still name what callers write in Host."},
    {.name = "tokens",
     .type = OPTION_STRING,
     .offset = AT(tokens),
     .help = "`bearer`: the tokens file, relative to the configuration file."},
    {.name = "trusted_proxies",
     .type = OPTION_STRINGS,
     .offset = AT(trusted_proxies),
     .help = "`forwarded-user`: addresses (10.1.2.3, 10.0.0.0/8, ::1) whose identity headers are believed; `unix` for "
             "unix sockets. Mandatory."},
    {.name = "user_header",
     .type = OPTION_STRING,
     .offset = AT(user_header),
     .help = "`forwarded-user`: who it is; X-Forwarded-User if absent."},
    {.name = "groups_header",
     .type = OPTION_STRING,
     .offset = AT(groups_header),
     .help = "`forwarded-user`: the roles, between commas; no roles if absent."},
    {.name = "tenant_header",
     .type = OPTION_STRING,
     .offset = AT(tenant_header),
     .help = "`forwarded-user`: the tenant; `tenant` if absent."},
    {.name = "tenant",
     .type = OPTION_STRING,
     .offset = AT(tenant),
     .help = "`forwarded-user`: the tenant of everybody who comes this way; `default` if absent."},
    {.name = "secret_header",
     .type = OPTION_STRING,
     .offset = AT(secret_header),
     .help = "`forwarded-user`: the header in which the proxy shows the secret; X-Postern-Secret if absent."},
    {.name = "secret",
     .type = OPTION_STRING,
     .offset = AT(secret),
     .secret = true,
     .help = "`forwarded-user`: at least 32 characters, best as ${NAME}. Beyond loopback this or `certificate_names` "
             "is mandatory."},
    {.name = "certificate_names",
     .type = OPTION_STRINGS,
     .offset = AT(certificate_names),
     .help = "`forwarded-user`: names (SAN) of the proxy's client certificate, one of which it must show."},
    {.name = "issuer",
     .type = OPTION_STRING,
     .offset = AT(issuer),
     .help = "`jwt`: `iss` of the tokens, byte for byte."},
    {.name = "audiences",
     .type = OPTION_STRINGS,
     .offset = AT(audiences),
     .help =
         "`jwt`: one of these must be in `aud`, byte for byte; usually the URL of the gateway's endpoint. Mandatory."},
    {.name = "jwks_uri",
     .type = OPTION_STRING,
     .offset = AT(jwks_uri),
     .help = "`jwt`: where the keys are; found out from the issuer's metadata if absent."},
    {.name = "algorithms",
     .type = OPTION_STRINGS,
     .offset = AT(algorithms),
     .help = "`jwt`: what may sign; RS256, PS256, ES256 and EdDSA if absent."},
    {.name = "clock_skew",
     .type = OPTION_DURATION,
     .offset = AT(clock_skew_ms),
     .fallback = "30",
     .min = 0,
     .max = 300000,
     .help = "`jwt`: how much clocks may differ."},
    {.name = "required_claims",
     .type = OPTION_STRINGS,
     .offset = AT(required_claims),
     .help = "`jwt`: claims that must be there."},
    {.name = "required_scopes",
     .type = OPTION_STRINGS,
     .offset = AT(required_scopes),
     .help = "`jwt`: scopes that must be there; a token without them is answered 403 `insufficient_scope`."},
    {.name = "require_at_jwt",
     .type = OPTION_BOOL,
     .offset = AT(require_at_jwt),
     .fallback = "false",
     .help = "`jwt`: `typ` must say access token."},
    {.name = "role_claims",
     .type = OPTION_STRINGS,
     .offset = AT(role_claims),
     .help = "`jwt`: JSON Pointers to roles and groups, such as /realm_access/roles, beside `scope` and `scp`."},
    {.name = "role_map",
     .type = OPTION_PAIRS,
     .offset = AT(role_map),
     .help = "`jwt`: value → role; values that are not here give no role."},
    {.name = "tenant_claim",
     .type = OPTION_STRING,
     .offset = AT(tenant_claim),
     .help = "`jwt`: JSON Pointer to the tenant; `tenant` if absent."},
    {0},
};
#undef AT

static bool check_provider(void *object, const struct option_place *place, struct err *err)
{
    const struct provider_config *config = object;
    bool bearer = strcmp(names[config->type], "bearer") == 0;
    bool forwarded = strcmp(names[config->type], "forwarded-user") == 0;
    if (bearer != (config->tokens != NULL))
        return err_set(err, ERR_CONFIG, "%s: %s/tokens: %s", place->file, place->path,
                       bearer ? "name the file that `postern token new --file` writes"
                              : "only for the type \"bearer\"");
    if (config->open && strcmp(names[config->type], "none") != 0)
        return err_set(err, ERR_CONFIG, "%s: %s/i_know_this_is_open: only for the type \"none\"", place->file,
                       place->path);
    bool jwt = strcmp(names[config->type], "jwt") == 0;
    return (!forwarded || provider_forwarded_check(config, place, err)) &&
           (!jwt || provider_jwt_check(config, place, err));
}

static const struct option_table provider_options = {"A provider (auth.providers[])", sizeof(struct provider_config),
                                                     provider_rows, check_provider};

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct auth_config *config = object;
    const struct provider_config *entries = config->providers.at;
    size_t seen[sizeof providers / sizeof *providers] = {0};
    if (!config->providers.count)
        return err_set(err, ERR_CONFIG, "%s: %s/providers: must name at least one provider", place->file, place->path);
    for (size_t i = 0; i < config->providers.count; i++)
        if (seen[entries[i].type]++)
            return err_set(err, ERR_CONFIG, "%s: %s/providers/%zu: a second provider of the type \"%s\"", place->file,
                           place->path, i, names[entries[i].type]);
    return true;
}

static const struct option auth_rows[] = {
    {.name = "providers",
     .type = OPTION_OBJECTS,
     .offset = offsetof(struct auth_config, providers),
     .fallback = "[{\"type\":\"none\"}]",
     .sub = &provider_options,
     .help = "Who may prove an identity, asked in order; the first that accepts or rejects decides."},
    {0},
};

const struct option_table auth_options = {"Authentication (auth)", sizeof(struct auth_config), auth_rows, check};

const char *provider_name(const struct provider_config *provider) { return names[provider->type]; }

bool provider_proves(const struct auth_config *config)
{
    const struct provider_config *entries = config->providers.at;
    for (size_t i = 0; i < config->providers.count; i++)
        if (providers[entries[i].type].proves)
            return true;
    return false;
}

bool provider_is_open(const struct auth_config *config)
{
    const struct provider_config *entries = config->providers.at;
    for (size_t i = 0; i < config->providers.count; i++)
        if (entries[i].open)
            return true;
    return false;
}

// ---- the chain ------------------------------------------------------------------------------

#define ISSUERS_MAX 1

struct provider_chain {
    struct link {
        const struct provider *provider;
        void *state;
    } * links;
    size_t count;
    const char *headers[CREDENTIAL_HEADERS_MAX + 1];
    size_t header_count;
    const char *issuers[ISSUERS_MAX + 1];
    char *const *scopes;  // of that issuer's tokens
};

const char *const *provider_chain_headers(const struct provider_chain *chain) { return chain->headers; }
const char *const *provider_chain_issuers(const struct provider_chain *chain) { return chain->issuers; }
char *const *provider_chain_scopes(const struct provider_chain *chain) { return chain->scopes; }

struct provider_chain *provider_chain_new(const struct auth_config *config, const struct provider_world *world,
                                          struct err *err)
{
    const struct provider_config *entries = config->providers.at;
    struct provider_chain *chain = mem_new(struct provider_chain);
    chain->links = mem_alloc((config->providers.count + 1) * sizeof *chain->links);
    for (size_t i = 0; i < config->providers.count; i++) {
        struct link *link = &chain->links[chain->count++];
        link->provider = &providers[entries[i].type];
        if (entries[i].issuer) {
            chain->issuers[0] = entries[i].issuer;  // one provider of each type
            chain->scopes = entries[i].required_scopes;
        }
        if (link->provider->open && !(link->state = link->provider->open(&entries[i], world, err))) {
            provider_chain_free(chain);
            return NULL;
        }
        if (link->provider->headers && chain->header_count == 0)  // two such providers would want other headers
            chain->header_count = link->provider->headers(link->state, chain->headers, 0);
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
    free(chain);
}

enum provider_verdict provider_chain_authenticate(struct provider_chain *chain, const struct credentials *credentials,
                                                  struct provider_wait *wait, struct identity **out, struct err *err)
{
    for (size_t i = 0; i < chain->count; i++) {
        const struct link *link = &chain->links[i];
        enum provider_verdict verdict = link->provider->authenticate(link->state, credentials, wait, out);
        switch (verdict) {
        case PROVIDER_ACCEPT:
        case PROVIDER_WAIT: return verdict;
        case PROVIDER_PASS: continue;
        case PROVIDER_REJECT:
            (void)err_set(err, ERR_UNAUTHENTICATED, "provider %s rejected the credential", link->provider->name);
            return verdict;
        case PROVIDER_MALFORMED:
            (void)err_set(err, ERR_BAD_FRAMING, "provider %s: identity headers that cannot be believed",
                          link->provider->name);
            return verdict;
        case PROVIDER_SCOPE:
            (void)err_set(err, ERR_SCOPE, "provider %s: the token lacks a required scope", link->provider->name);
            return verdict;
        case PROVIDER_UNAVAILABLE:
            (void)err_set(err, ERR_AUTH_UNAVAILABLE, "provider %s cannot tell now", link->provider->name);
            return verdict;
        }
    }
    (void)err_set(err, ERR_UNAUTHENTICATED, "no provider took the credential");
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

bool provider_chain_stands(struct provider_chain *chain, const struct identity *identity)
{
    if (identity->expires && identity->expires <= (int64_t)time(NULL))
        return false;
    for (size_t i = 0; i < chain->count; i++)
        if (strcmp(chain->links[i].provider->name, identity->provider) == 0)
            return !chain->links[i].provider->stands ||
                   chain->links[i].provider->stands(chain->links[i].state, identity);
    return false;
}

bool provider_chain_relays(struct provider_chain *chain, const struct credentials *credentials)
{
    for (size_t i = 0; i < chain->count; i++)
        if (chain->links[i].provider->relays && chain->links[i].provider->relays(chain->links[i].state, credentials))
            return true;
    return false;
}
