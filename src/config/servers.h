// Checks that the configuration has the options that its servers require. An error names the file and the server.
#ifndef CONFIG_SERVERS_H
#define CONFIG_SERVERS_H

#include "config/config.h"

bool config_servers_check(const struct config *config, const char *file, struct err *err) MUST_CHECK;
// The tenants from `first` on, which were read from files of their own in `folder`.
bool config_servers_check_tenants(const struct config *config, size_t first, const char *folder, const char *top,
                                  struct err *err) MUST_CHECK;

#endif
