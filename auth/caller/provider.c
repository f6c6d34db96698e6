// Owns the names of providers and of their types.
#include "provider_table.h"

const char *const provider_types[] = {[PROVIDER_NONE] = "none",
                                      [PROVIDER_BEARER] = "bearer",
                                      [PROVIDER_FORWARDED] = "forwarded-user",
                                      [PROVIDER_JWT] = "jwt",
                                      [PROVIDER_TYPES] = NULL};

const char *provider_type(const struct provider_config *provider) { return provider_types[provider->type]; }

const char *provider_name(const struct provider_config *provider)
{
    return provider->name ? provider->name : provider_types[provider->type];
}
