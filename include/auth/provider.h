// Providers turn credentials into an identity. The table in provider.c lists them all; a new one is
// a file with its function, and a row there.
#ifndef AUTH_PROVIDER_H
#define AUTH_PROVIDER_H

#include "auth/credentials.h"
#include "auth/identity.h"
#include "base/err.h"
#include "base/option.h"

enum provider_verdict { PROVIDER_REJECT, PROVIDER_PASS, PROVIDER_ACCEPT };

// One entry of auth.providers.
struct provider_config {
    int type;
};

struct auth_config {
    struct option_items providers;  // struct provider_config, in order
};

extern const struct option_table auth_options;

// Asks the configured providers in order. The first that accepts or rejects decides; if all pass, or
// there is none, nobody gets in.
bool provider_authenticate(const struct auth_config *config, const struct credentials *credentials,
                           struct identity **out, struct err *err) MUST_CHECK;
// True if some provider proves who calls; listeners beyond loopback need one.
bool provider_proves(const struct auth_config *config);

#endif
