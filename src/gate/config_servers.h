// Whether the configuration has what its servers need; an error names the file and the server.
#ifndef GATE_CONFIG_SERVERS_H
#define GATE_CONFIG_SERVERS_H

#include "gate/config.h"

bool config_check_servers(const struct config *config, const char *file, struct err *err) MUST_CHECK;
// The tenants from `first` on, which came from files of their own in `folder`.
bool config_check_tenants(const struct config *config, size_t first, const char *folder, const char *main,
                          struct err *err) MUST_CHECK;

#endif
