// The grants that commands use: their store, and the grant that the options name.
#ifndef CMD_BASE_GRANTS_H
#define CMD_BASE_GRANTS_H

#include "auth/grant/store.h"
#include "cmd/base/options.h"
#include "config/config.h"

// The grant store of this configuration. `config` NULL: the usual places. Without `make`, *out is NULL if the store
// does not exist yet.
bool grants_open(const struct config *config, struct loop *loop, bool make, struct grant_store **out,
                 struct err *err) MUST_CHECK;
// Whether changes to the store last. False: the store is a seed (S11); the error is printed and the exit code set.
bool grants_lasts(const struct config *config, int *code);

const char *grants_tenant(const struct flags *flags);
// The owner of the grants: from --subject PROVIDER:NAME, else the command line's own user. NULL: the option is
// malformed. The caller frees it.
char *grants_user(const struct flags *flags);
// The server that SERVER or --url names, in --tenant; NULL with the exit code set.
const struct server *grants_server(const struct config *config, const struct flags *flags, int *code);

#endif
