// The requirements that a gateway checks before it serves, shared by `serve` and `config check`.
#ifndef CMD_PREFLIGHT_H
#define CMD_PREFLIGHT_H

#include "auth/policy/policy.h"
#include "config/config.h"

bool preflight_needs_store(const struct config *config);  // does some server have grants or registrations to store?

// Reports a server that cannot work as configured, with its place. The gateway starts without it.
typedef void preflight_server_fn(void *arg, const char *place, const struct err *err);
void preflight_servers(const struct config *config, preflight_server_fn *report, void *arg);

// All checks of `serve`, except of ports and of files that it creates itself. Offline, files of the host are not
// checked.
bool preflight_check(const struct config *config, bool offline, struct err *err) MUST_CHECK;

// Raises the limit of descriptors of this process as far as allowed, and warns if that is not enough for the
// configuration.
void preflight_raise_descriptors(const struct config *config);

#endif
