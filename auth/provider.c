// Owns the table of providers and the chain through it.
#include "auth/provider.h"
#include "provider_none.h"

struct provider {
    const char *name;
    bool proves;  // who calls, rather than that anybody may
    enum provider_verdict (*authenticate)(const struct credentials *credentials, struct identity **out);
};

static const struct provider providers[] = {
    {"none", false, provider_none},
};

static const char *const names[] = {"none", NULL};

static const struct option provider_rows[] = {
    {.name = "type",
     .type = OPTION_ENUM,
     .offset = offsetof(struct provider_config, type),
     .fallback = "\"none\"",
     .choices = names,
     .help = "`none`: anybody who reaches the listener, which must be on loopback."},
    {0},
};

static const struct option_table provider_options = {"A provider (auth.providers[])", sizeof(struct provider_config),
                                                     provider_rows, NULL};

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct auth_config *config = object;
    if (config->providers.count)
        return true;
    return err_set(err, ERR_CONFIG, "%s: %s/providers: must name at least one provider", place->file, place->path);
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

static const struct provider *provider_at(const struct auth_config *config, size_t i)
{
    const struct provider_config *entries = config->providers.at;
    return &providers[entries[i].type];
}

bool provider_authenticate(const struct auth_config *config, const struct credentials *credentials,
                           struct identity **out, struct err *err)
{
    for (size_t i = 0; i < config->providers.count; i++) {
        const struct provider *provider = provider_at(config, i);
        switch (provider->authenticate(credentials, out)) {
        case PROVIDER_ACCEPT: return true;
        case PROVIDER_REJECT:
            return err_set(err, ERR_UNAUTHENTICATED, "provider %s rejected the credential", provider->name);
        case PROVIDER_PASS: break;
        }
    }
    return err_set(err, ERR_UNAUTHENTICATED, "no provider took the credential");
}

bool provider_proves(const struct auth_config *config)
{
    for (size_t i = 0; i < config->providers.count; i++)
        if (provider_at(config, i)->proves)
            return true;
    return false;
}
