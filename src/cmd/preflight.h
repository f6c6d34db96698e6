// What a gateway needs before it can serve, read the same way by `serve` and by `config check`.
#ifndef CMD_PREFLIGHT_H
#define CMD_PREFLIGHT_H

#include "auth/policy/policy.h"
#include "config/config.h"

// The providers at the top, then those of each listener, or NULL where it has none of its own.
struct provider_chain **preflight_chains(const struct config *config, const struct provider_world *world,
                                         struct err *err) MUST_CHECK;
void preflight_chains_free(struct provider_chain **chains, const struct config *config);

bool preflight_needs_store(const struct config *config);  // does some server have grants or registrations to keep?

// Servers that cannot work as they are configured, each told with its place: a gateway starts without them.
typedef void preflight_server_fn(void *arg, const char *place, const struct err *err);
void preflight_servers(const struct config *config, preflight_server_fn *report, void *arg);

// All that `serve` would refuse, but for ports and files that it makes itself. Offline, files of the host are left out.
bool preflight_check(const struct config *config, bool offline, struct err *err) MUST_CHECK;

#endif
