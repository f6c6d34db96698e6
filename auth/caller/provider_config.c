// Owns `auth.providers` of the configuration: the options, and which of them exclude each other.
#include "provider_table.h"

#define AT(member) offsetof(struct provider_config, member)
static const struct option provider_rows[] = {
    {.name = "name",
     .type = OPTION_STRING,
     .offset = AT(name),
     .help = "The name of the provider in policies (`user:NAME:SUBJECT`) and in the audit log; the type if absent. The "
             "grants of callers are also stored under this name."},
    {.name = "type",
     .type = OPTION_ENUM,
     .offset = AT(type),
     .choices = provider_types,
     .fallback = "\"none\"",
     .help = "`none`: accepts every client that reaches the listener, which must be on loopback. `bearer`: tokens that "
             "`postern token` issued. `forwarded-user`: headers of a trusted proxy in front of the gateway. `jwt`: "
             "access tokens of an issuer; several issuers need one entry each."},
    {.name = "i_know_this_is_open",
     .type = OPTION_BOOL,
     .offset = AT(open),
     .fallback = "false",
     .help = "`none`: accept unauthenticated callers also on listeners that are not on loopback. `public_url` or "
             "`allowed_hosts` must still name the hosts that callers send in Host."},
    {.name = "tokens",
     .type = OPTION_STRING,
     .offset = AT(tokens),
     .help = "`bearer`: the tokens file, relative to the configuration file."},
    {.name = "trusted_proxies",
     .type = OPTION_STRINGS,
     .offset = AT(trusted_proxies),
     .help = "`forwarded-user`: addresses (10.1.2.3, 10.0.0.0/8, ::1) whose identity headers are accepted; `unix` for "
             "unix sockets. Mandatory."},
    {.name = "user_header",
     .type = OPTION_STRING,
     .offset = AT(user_header),
     .help = "`forwarded-user`: the header with the subject; X-Forwarded-User if absent."},
    {.name = "groups_header",
     .type = OPTION_STRING,
     .offset = AT(groups_header),
     .help = "`forwarded-user`: the header with the roles, separated by commas; no roles if absent."},
    {.name = "tenant_header",
     .type = OPTION_STRING,
     .offset = AT(tenant_header),
     .help = "`forwarded-user`: the header with the tenant; the option `tenant` if absent."},
    {.name = "tenant",
     .type = OPTION_STRING,
     .offset = AT(tenant),
     .help = "`forwarded-user`, `jwt`: the tenant of callers of this provider; `default` if absent."},
    {.name = "secret_header",
     .type = OPTION_STRING,
     .offset = AT(secret_header),
     .help = "`forwarded-user`: the header in which the proxy sends the secret; X-Postern-Secret if absent."},
    {.name = "secret",
     .type = OPTION_STRING,
     .offset = AT(secret),
     .secret = true,
     .help = "`forwarded-user`: the secret of the proxy, at least 32 characters, preferably as ${NAME}. This option or "
             "`certificate_names` is mandatory for a proxy that is neither on loopback nor on a unix socket."},
    {.name = "certificate_names",
     .type = OPTION_STRINGS,
     .offset = AT(certificate_names),
     .help = "`forwarded-user`: names (SAN). The client certificate of the proxy must have one of them."},
    {.name = "issuer",
     .type = OPTION_STRING,
     .offset = AT(issuer),
     .help = "`jwt`: the issuer, compared byte for byte with `iss` of the tokens."},
    {.name = "audiences",
     .type = OPTION_STRINGS,
     .offset = AT(audiences),
     .help = "`jwt`: accepted audiences, compared byte for byte with `aud` of the tokens; usually the URL of the "
             "gateway's endpoint. Mandatory."},
    {.name = "jwks_uri",
     .type = OPTION_STRING,
     .offset = AT(jwks_uri),
     .help = "`jwt`: the URL of the issuer's keys; taken from the issuer's metadata if absent."},
    {.name = "algorithms",
     .type = OPTION_STRINGS,
     .offset = AT(algorithms),
     .help = "`jwt`: the accepted signature algorithms; RS256, PS256, ES256 and EdDSA if absent."},
    {.name = "clock_skew",
     .type = OPTION_DURATION,
     .offset = AT(clock_skew_ms),
     .fallback = "30",
     .min = 0,
     .max = 300000,
     .help = "`jwt`: the accepted difference between clocks."},
    {.name = "required_claims",
     .type = OPTION_STRINGS,
     .offset = AT(required_claims),
     .help = "`jwt`: claims that a token must have."},
    {.name = "required_scopes",
     .type = OPTION_STRINGS,
     .offset = AT(required_scopes),
     .help = "`jwt`: scopes that a token must have; a token without them is refused with 403 `insufficient_scope`."},
    {.name = "require_at_jwt",
     .type = OPTION_BOOL,
     .offset = AT(require_at_jwt),
     .fallback = "false",
     .help = "`jwt`: require a `typ` of `at+jwt`."},
    {.name = "role_claims",
     .type = OPTION_STRINGS,
     .offset = AT(role_claims),
     .help =
         "`jwt`: JSON Pointers to roles and groups, such as /realm_access/roles, in addition to `scope` and `scp`."},
    {.name = "role_map",
     .type = OPTION_PAIRS,
     .offset = AT(role_map),
     .help = "`jwt`: a map from values of the role claims to roles. Values that are not listed are ignored."},
    {.name = "tenant_claim",
     .type = OPTION_STRING,
     .offset = AT(tenant_claim),
     .help = "`jwt`: JSON Pointer to the tenant; the option `tenant` if absent."},
    {0},
};
#undef AT

// The name is part of user:NAME:SUBJECT, so it must not contain a colon.
static bool is_name(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= 64 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

static bool check_provider(void *object, const struct option_place *place, struct err *err)
{
    const struct provider_config *config = object;
    const struct provider *provider = &provider_table[config->type];
    bool bearer = config->type == PROVIDER_BEARER;
    if (config->name && !is_name(config->name))
        return err_set(err, ERR_CONFIG, "%s: %s/name: must be 1 to 64 letters, digits and . _ -", place->file,
                       place->path);
    if (bearer != (config->tokens != NULL))
        return err_set(err, ERR_CONFIG, "%s: %s/tokens: %s", place->file, place->path,
                       bearer ? "name the file that `postern token new --file` writes"
                              : "only for the type \"bearer\"");
    if (config->open && config->type != PROVIDER_NONE)
        return err_set(err, ERR_CONFIG, "%s: %s/i_know_this_is_open: only for the type \"none\"", place->file,
                       place->path);
    return !provider->check || provider->check(config, place, err);
}

static const struct option_table entry_options = {"A provider (auth.providers[])", sizeof(struct provider_config),
                                                  provider_rows, check_provider};

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

// Why a second provider cannot be in the same list as the first; NULL: it can.
static const char *clash(const struct provider_config *first, const struct provider_config *second)
{
    if (first->type == second->type && !provider_table[first->type].many)
        return "only one provider may have this type; remove one of them";
    if (strcmp(provider_name(first), provider_name(second)) == 0)
        return "another provider has the same name; give this one a `name` of its own";
    if (first->issuer && same_text(first->issuer, second->issuer))
        return "another provider of this type has the same issuer; remove one of them";
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
                return err_set(err, ERR_CONFIG, "%s: %s/providers/%zu (%s): %s", place->file, place->path, i,
                               provider_types[entries[i].type], problem);
    return true;
}

static const struct option auth_rows[] = {
    {.name = "providers",
     .type = OPTION_OBJECTS,
     .offset = offsetof(struct auth_config, providers),
     .fallback = "[{\"type\":\"none\"}]",
     .sub = &entry_options,
     .help = "The providers that authenticate callers, in order. The first provider that accepts or rejects a "
             "credential decides."},
    {0},
};

const struct option_table provider_config_options = {"Authentication (auth)", sizeof(struct auth_config), auth_rows,
                                                     check};

static bool check_listener(void *object, const struct option_place *place, struct err *err)
{
    const struct auth_config *config = object;
    return !config->providers.at || check(object, place, err);
}

static const struct option listener_rows[] = {
    {.name = "providers",
     .type = OPTION_OBJECTS,
     .offset = offsetof(struct auth_config, providers),
     .sub = &entry_options,
     .help = "The providers of this listener, as in `auth.providers`; the value of `auth.providers` if absent."},
    {0},
};

const struct option_table provider_config_listener_options = {
    "Authentication of a listener (listen[].auth)", sizeof(struct auth_config), listener_rows, check_listener};

// Two proxies may use different user directories, so their subjects are never the same by name alone.
static bool same_people(const struct provider_config *one, const struct provider_config *other)
{
    return one->type == other->type && same_text(one->tokens, other->tokens) && same_text(one->issuer, other->issuer) &&
           !one->trusted_proxies;
}

bool provider_config_names_agree(const struct auth_config *one, const struct auth_config *other,
                                 const struct option_place *place, struct err *err)
{
    const struct provider_config *a = one->providers.at, *b = other->providers.at;
    for (size_t i = 0; i < one->providers.count; i++)
        for (size_t k = 0; k < other->providers.count; k++)
            if (strcmp(provider_name(&a[i]), provider_name(&b[k])) == 0 && !same_people(&a[i], &b[k]))
                return err_set(
                    err, ERR_CONFIG,
                    "%s: %s/providers/%zu: another provider has the name \"%s\" already, and its subjects may be "
                    "different users; give this one a `name` of its own",
                    place->file, place->path, k, provider_name(&b[k]));
    return true;
}

bool provider_config_proves(const struct auth_config *config)
{
    const struct provider_config *entries = config->providers.at;
    for (size_t i = 0; i < config->providers.count; i++)
        if (provider_table[entries[i].type].proves)
            return true;
    return false;
}

bool provider_config_is_open(const struct auth_config *config)
{
    const struct provider_config *entries = config->providers.at;
    for (size_t i = 0; i < config->providers.count; i++)
        if (entries[i].open)
            return true;
    return false;
}
