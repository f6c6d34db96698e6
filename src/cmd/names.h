// The names that a policy may use, as a configuration has them.
#ifndef CMD_NAMES_H
#define CMD_NAMES_H

#include "gate/config.h"

// Each list with a NULL at its end; the texts are the configuration's.
struct names {
    const char **servers, **tenants, **providers;
};

// For the policy at this path: the servers of the tenants that have it, and all tenants and providers. A policy that no
// tenant has yet may name the servers of all of them.
struct names names_of(const struct config *config, const char *policy);
void names_release(struct names *names);

#endif
