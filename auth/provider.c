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
    const char *type;
    bool proves;  // who calls, rather than that anybody may
    bool many;    // several in one chain: each says of a credential whether it is its own (PROVIDER_FOREIGN)
    bool (*check)(const struct provider_config *config, const struct option_place *place, struct err *err);
    // What it keeps between calls.
    void *(*open)(const struct provider_config *config, const struct provider_world *world, struct err *err);
    void (*close)(void *state);
    // Asked of every request before the chain, whoever would take the credential: PASS or MALFORMED.
    enum provider_verdict (*inspect)(void *state, const struct credentials *credentials);
    enum provider_verdict (*authenticate)(void *state, const struct credentials *credentials,
                                          struct provider_wait *wait, struct identity **out);
    // Which headers it wants to see; gets where in the list they begin, returns how many.
    size_t (*headers)(void *state, const char **names, size_t first);
    bool (*poll)(void **state, struct err *err);
    bool (*stands)(void *state, const struct identity *identity);
    bool (*is_proxy)(void *state, const struct peer *peer);              // its address is that of a trusted proxy
    bool (*relays)(void *state, const struct credentials *credentials);  // from a proxy that proved itself
    void (*health)(void *state, struct provider_health *out);
} providers[] = {
    {.type = "none", .open = provider_none_open, .close = provider_none_close, .authenticate = provider_none},
    {.type = "bearer",
     .proves = true,
     .open = provider_bearer_open,
     .close = provider_bearer_close,
     .authenticate = provider_bearer,
     .poll = provider_bearer_poll,
     .stands = provider_bearer_stands},
    {.type = "forwarded-user",
     .proves = true,
     .check = provider_forwarded_check,
     .open = provider_forwarded_open,
     .close = provider_forwarded_close,
     .inspect = provider_forwarded_inspect,
     .authenticate = provider_forwarded,
     .headers = provider_forwarded_headers,
     .is_proxy = provider_forwarded_is_proxy,
     .relays = provider_forwarded_relays},
    {.type = "jwt",
     .proves = true,
     .many = true,
     .check = provider_jwt_check,
     .open = provider_jwt_open,
     .close = provider_jwt_close,
     .authenticate = provider_jwt,
     .health = provider_jwt_health},
};

static const char *const types[] = {"none", "bearer", "forwarded-user", "jwt", NULL};

#define AT(member) offsetof(struct provider_config, member)
static const struct option provider_rows[] = {
    {.name = "name",
     .type = OPTION_STRING,
     .offset = AT(name),
     .help = "Who vouches for the callers it lets in, as policies (`user:NAME:SUBJECT`) and the audit log call it; the "
             "type if absent. Accounts that callers connected belong to this name, too."},
    {.name = "type",
     .type = OPTION_ENUM,
     .offset = AT(type),
     .choices = types,
     .fallback = "\"none\"",
     .help = "`none`: anybody who reaches the listener, which must be on loopback. `bearer`: tokens of `postern "
             "token`. `forwarded-user`: headers of a trusted proxy in front. `jwt`: access tokens of an issuer; "
             "with several issuers, one entry for each."},
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
     .help = "`forwarded-user`, `jwt`: the tenant of everybody who comes this way; `default` if absent."},
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

// As it stands in user:NAME:SUBJECT, so without a colon.
static bool is_name(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= 64 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

static bool check_provider(void *object, const struct option_place *place, struct err *err)
{
    const struct provider_config *config = object;
    const struct provider *provider = &providers[config->type];
    bool bearer = strcmp(provider->type, "bearer") == 0;
    if (config->name && !is_name(config->name))
        return err_set(err, ERR_CONFIG, "%s: %s/name: 1 to 64 letters, digits and . _ -", place->file, place->path);
    if (bearer != (config->tokens != NULL))
        return err_set(err, ERR_CONFIG, "%s: %s/tokens: %s", place->file, place->path,
                       bearer ? "name the file that `postern token new --file` writes"
                              : "only for the type \"bearer\"");
    if (config->open && strcmp(provider->type, "none") != 0)
        return err_set(err, ERR_CONFIG, "%s: %s/i_know_this_is_open: only for the type \"none\"", place->file,
                       place->path);
    return !provider->check || provider->check(config, place, err);
}

static const struct option_table provider_options = {"A provider (auth.providers[])", sizeof(struct provider_config),
                                                     provider_rows, check_provider};

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

// What is wrong with a second provider beside a first one in the same list; NULL: nothing.
static const char *clash(const struct provider_config *first, const struct provider_config *second)
{
    if (first->type == second->type && !providers[first->type].many)
        return "a second provider of the type";
    if (strcmp(provider_name(first), provider_name(second)) == 0)
        return "a second provider of the same name; give it a `name` of its own, beside the type";
    if (first->issuer && same_text(first->issuer, second->issuer))
        return "a second provider for the same issuer, of the type";
    return NULL;
}

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct auth_config *config = object;
    const struct provider_config *entries = config->providers.at;
    const char *problem;
    if (!config->providers.count)
        return err_set(err, ERR_CONFIG, "%s: %s/providers: must name at least one provider", place->file, place->path);
    for (size_t i = 0; i < config->providers.count; i++)
        for (size_t k = 0; k < i; k++)
            if ((problem = clash(&entries[k], &entries[i])))
                return err_set(err, ERR_CONFIG, "%s: %s/providers/%zu: %s \"%s\"", place->file, place->path, i, problem,
                               types[entries[i].type]);
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

static bool check_listener(void *object, const struct option_place *place, struct err *err)
{
    const struct auth_config *config = object;
    return !config->providers.at || check(object, place, err);
}

static const struct option listener_rows[] = {
    {.name = "providers",
     .type = OPTION_OBJECTS,
     .offset = offsetof(struct auth_config, providers),
     .sub = &provider_options,
     .help = "As `auth.providers`, which are for this listener if absent."},
    {0},
};

const struct option_table auth_listener_options = {"Authentication of a listener (listen[].auth)",
                                                   sizeof(struct auth_config), listener_rows, check_listener};

const char *provider_type(const struct provider_config *provider) { return types[provider->type]; }

const char *provider_name(const struct provider_config *provider)
{
    return provider->name ? provider->name : types[provider->type];
}

// Behind two proxies there may be two directories of people, so those are never the same by themselves.
static bool same_people(const struct provider_config *one, const struct provider_config *other)
{
    return one->type == other->type && same_text(one->tokens, other->tokens) && same_text(one->issuer, other->issuer) &&
           !one->trusted_proxies;
}

bool provider_names_agree(const struct auth_config *one, const struct auth_config *other,
                          const struct option_place *place, struct err *err)
{
    const struct provider_config *a = one->providers.at, *b = other->providers.at;
    for (size_t i = 0; i < one->providers.count; i++)
        for (size_t k = 0; k < other->providers.count; k++)
            if (strcmp(provider_name(&a[i]), provider_name(&b[k])) == 0 && !same_people(&a[i], &b[k]))
                return err_set(
                    err, ERR_CONFIG,
                    "%s: %s/providers/%zu: another provider is called \"%s\" already, and may mean other people "
                    "by the same subjects; give this one a `name`",
                    place->file, place->path, k, provider_name(&b[k]));
    return true;
}

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

struct provider_chain {
    struct link {
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
    struct link *link = &chain->links[chain->count++];
    link->provider = &providers[config->type];
    link->name = provider_name(config);
    if (config->issuer)
        chain->issuers = add_text(chain->issuers, config->issuer);
    for (char **scope = config->required_scopes; scope && *scope; scope++)
        chain->scopes = add_text(chain->scopes, *scope);
    if (!(link->state = link->provider->open(config, world, err)))
        return false;
    if (link->provider->headers)  // one of them in a chain, see clash()
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

// What the link said, as the chain says it: PASS goes on to the next.
static enum provider_verdict ask(const struct provider_chain *chain, size_t i, const struct credentials *credentials,
                                 struct provider_wait *wait, struct identity **out)
{
    const struct link *link = &chain->links[i];
    enum provider_verdict verdict = link->provider->authenticate(link->state, credentials, wait, out);
    if (verdict != PROVIDER_FOREIGN)
        return verdict;
    return another_follows(chain, i) ? PROVIDER_PASS : PROVIDER_REJECT;
}

static enum provider_verdict refuse(const struct link *link, enum provider_verdict verdict, struct err *err)
{
    switch (verdict) {
    case PROVIDER_MALFORMED:
        (void)err_set(err, ERR_BAD_FRAMING, "provider %s: identity headers that cannot be believed", link->name);
        break;
    case PROVIDER_SCOPE:
        (void)err_set(err, ERR_SCOPE, "provider %s: the token lacks a required scope", link->name);
        break;
    case PROVIDER_UNAVAILABLE:
        (void)err_set(err, ERR_AUTH_UNAVAILABLE, "provider %s cannot tell now", link->name);
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
        const struct link *link = &chain->links[i];
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

static const struct link *link_of(const struct provider_chain *chain, const struct identity *identity)
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
    const struct link *link = link_of(chain, identity);
    if (!link || (identity->expires && identity->expires <= (int64_t)time(NULL)))
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
