// Finding the server that a command names.
#ifndef CMD_BASE_FIND_H
#define CMD_BASE_FIND_H

#include "config/config.h"

// The server of this name. NULL: the error suggests a name or a --tenant.
const struct server *find_server(const struct config *config, const char *tenant, const char *name,
                                 struct err *err) MUST_CHECK;
bool find_check_tenant(const struct config *config, const char *tenant, struct err *err) MUST_CHECK;  // NULL: any
void find_set_unknown(const struct config *config, const char *tenant, const char *name, struct err *err);

#endif
