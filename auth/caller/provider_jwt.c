// Owns the provider `jwt`: access tokens of one issuer, verified with its keys, mapped to an identity.
#include "provider_jwt.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "claims.h"
#include "jwks_source.h"
#include "jwt_cache.h"
#include <stdlib.h>
#include <strings.h>

#define CACHE_ROOM 4096

struct jwt_provider {
    const struct provider_config *config;
    struct jwt_rules rules;
    struct claims_role_rules roles;
    struct jwks_source *source;
    struct jwt_cache *cache;
};

// The syntax of RFC 6749; these names are sent to callers in a header.
static bool is_scope(const char *text)
{
    for (const char *at = text; *at; at++)
        if (*at <= ' ' || *at > '~' || *at == '"' || *at == '\\')
            return false;
    return *text;
}

static struct jwt_rules rules_of(const struct provider_config *config, unsigned algorithms)
{
    return (struct jwt_rules){.issuer = config->issuer,
                              .audiences = config->audiences,
                              .required_claims = config->required_claims,
                              .algorithms = algorithms,
                              .skew = config->clock_skew_ms / 1000,
                              .require_at_jwt = config->require_at_jwt};
}

bool provider_jwt_check(const struct provider_config *config, const struct option_place *place, struct err *err)
{
    struct err problem = {0};
    unsigned algorithms = 0;
    const char *const urls[] = {config->issuer, config->jwks_uri};
    for (size_t i = 0; i < 2; i++)
        if (urls[i] && !jwks_source_may_fetch(urls[i], urls[i]))
            return err_set(err, ERR_CONFIG, "%s: %s/%s: must be an https:// URL (http:// only on loopback)",
                           place->file, place->path, i ? "jwks_uri" : "issuer");
    for (char **scope = config->required_scopes; scope && *scope; scope++)
        if (!is_scope(*scope))
            return err_set(err, ERR_CONFIG, "%s: %s/required_scopes: \"%s\" is not the name of a scope", place->file,
                           place->path, *scope);
    bool ok = !config->tenant_claim || claims_pointer_check(config->tenant_claim, &problem);
    for (char **claim = config->role_claims; ok && claim && *claim; claim++)
        ok = claims_pointer_check(*claim, &problem);
    if (ok && jwt_algorithms(config->algorithms, &algorithms, &problem)) {
        struct jwt_rules rules = rules_of(config, algorithms);
        if (jwt_rules_check(&rules, &problem))
            return true;
    }
    return err_set(err, ERR_CONFIG, "%s: %s: %.300s", place->file, place->path, problem.detail);
}

static void on_new_keys(void *arg)
{
    struct jwt_provider *provider = arg;
    if (provider->cache)
        jwt_cache_clear(provider->cache);
}

void *provider_jwt_open(const struct provider_config *config, const struct provider_world *world, struct err *err)
{
    unsigned algorithms = 0;
    if (!jwt_self_test(err) || !jwt_algorithms(config->algorithms, &algorithms, err))
        return NULL;
    struct jwt_provider *provider = mem_new(struct jwt_provider);
    provider->config = config;
    provider->rules = rules_of(config, algorithms);
    provider->roles = (struct claims_role_rules){.claims = config->role_claims, .values = config->role_map};
    provider->cache = jwt_cache_new(CACHE_ROOM);
    provider->source = jwks_source_new(world, config->issuer, config->jwks_uri, on_new_keys, provider);
    return provider;
}

void provider_jwt_close(void *state)
{
    struct jwt_provider *provider = state;
    jwks_source_free(provider->source);
    jwt_cache_free(provider->cache);
    free(provider);
}

void provider_jwt_health(void *state, struct provider_health *out)
{
    const struct jwt_provider *provider = state;
    out->issuer = provider->config->issuer;
    jwks_source_health(provider->source, out);
}

static bool make_identity(const struct jwt_provider *provider, const struct jwt_claims *claims, struct identity **out,
                          struct err *err)
{
    const struct provider_config *config = provider->config;
    if (!claims->subject)
        return err_set(err, ERR_UNAUTHENTICATED, "the token has no subject");
    if (config->required_scopes && !claims_have_scopes(claims, config->required_scopes))
        return err_set(err, ERR_SCOPE, "the token lacks a required scope");
    const char *tenant = claims_tenant(claims, config->tenant_claim, config->tenant ? config->tenant : "default", err);
    if (!tenant)
        return false;
    struct identity *identity = identity_new(IDENTITY_JWT, tenant, provider_name(config), claims->subject);
    identity->expires = claims->expires;
    identity->token_id = mem_string(claims->token_id);
    if (!claims_add_roles(claims, &provider->roles, identity, err)) {
        identity_unref(identity);
        return false;
    }
    if (identity->roles_left_out)
        log_warn("the issuer left roles out of a token (group overage)", LOG_STR("issuer", config->issuer));
    *out = identity;
    return true;
}

// Keys that are missing may be on their way, so the call waits for them once. The token is rejected only if the key is not
// in a set that was fetched (J12); while the set cannot be fetched, the verdict is UNAVAILABLE.
// `kid`: names a key that is missing from the set; NULL: the set of keys was not fetched yet.
static enum provider_verdict wait_for_keys(struct jwt_provider *provider, struct provider_wait *wait, struct span kid)
{
    bool miss = kid.at != NULL;
    bool coming = miss ? jwks_source_miss(provider->source, kid) : jwks_source_fetching(provider->source);
    if (coming && !wait->waited) {
        jwks_source_wait(provider->source, wait);
        return PROVIDER_WAIT;
    }
    return miss && !coming && !jwks_source_failing(provider->source) ? PROVIDER_REJECT : PROVIDER_UNAVAILABLE;
}

static enum provider_verdict verify(struct jwt_provider *provider, struct span token, struct span kid,
                                    struct provider_wait *wait, struct identity **out)
{
    struct jwt_claims claims;
    struct err err = {0};
    int64_t now = clock_wall_s();
    const struct jwks *keys = jwks_source_keys(provider->source);
    if (!keys)
        return wait_for_keys(provider, wait, (struct span){0});
    switch (jwt_verify(&provider->rules, keys, token, now, &claims, &err)) {
    case JWT_UNKNOWN_KEY: return wait_for_keys(provider, wait, kid);
    case JWT_REJECTED: log_debug("token rejected", LOG_STR("detail", err.detail)); return PROVIDER_REJECT;
    case JWT_ACCEPTED: break;
    }
    bool ok = make_identity(provider, &claims, out, &err);
    jwt_claims_release(&claims);
    if (!ok) {
        log_info("token rejected", LOG_STR("detail", err.detail));
        return err.code == ERR_SCOPE ? PROVIDER_SCOPE : PROVIDER_REJECT;
    }
    jwt_cache_put(provider->cache, token, *out);
    return PROVIDER_ACCEPT;
}

enum provider_verdict provider_jwt(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                   struct identity **out)
{
    struct jwt_provider *provider = state;
    struct span token = credentials_bearer(credentials);
    struct jwt jwt;
    struct err err;
    if (!token.at || token.len > JWT_TOKEN_MAX || !memchr(token.at, '.', token.len))
        return PROVIDER_PASS;
    const struct identity *known = jwt_cache_find(provider->cache, token, clock_wall_s());
    if (known) {
        *out = identity_ref(known);
        return PROVIDER_ACCEPT;
    }
    if (!jwt_parse(token, &jwt, &err))
        return PROVIDER_REJECT;
    // The issuer that the token names selects the provider; that provider then verifies it.
    bool ours = jwt.issuer && strcmp(jwt.issuer, provider->config->issuer) == 0;
    enum provider_verdict verdict =
        ours ? verify(provider, token, span_of(jwt.kid ? jwt.kid : ""), wait, out) : PROVIDER_FOREIGN;
    jwt_release(&jwt);
    return verdict;
}
