// What a gateway needs before it can serve, read the same way by `serve` and by `config check`.
#ifndef CMD_PREFLIGHT_H
#define CMD_PREFLIGHT_H

#include "auth/policy/policy.h"
#include "config/config.h"

bool preflight_needs_store(const struct config *config);  // does some server have grants or registrations to keep?

// Servers that cannot work as they are configured, each told with its place: a gateway starts without them.
typedef void preflight_server_fn(void *arg, const char *place, const struct err *err);
void preflight_servers(const struct config *config, preflight_server_fn *report, void *arg);

// All that `serve` would refuse, but for ports and files that it makes itself. Offline, files of the host are left out.
bool preflight_check(const struct config *config, bool offline, struct err *err) MUST_CHECK;

// Raises the limit of descriptors of this process as far as it may, and warns if that is not enough for the configuration.
void preflight_raise_descriptors(const struct config *config);

#endif
