// The configuration of a command.
#ifndef CMD_BASE_CONFIGURATION_H
#define CMD_BASE_CONFIGURATION_H

#include "cmd/base/options.h"
#include "config/config.h"

// Loads the configuration; with --url, makes one with a single server named "url"; with --offline, lists unset
// variables on stderr. NULL: the exit code is set.
struct config *configuration_load(const struct flags *flags, int *exit_code);
// The same, for a command that talks to servers: with --url, the server gets the token of --token-file or
// $POSTERN_TOKEN.
struct config *configuration_for_client(const struct flags *flags, int *exit_code);
// The audit database: --file, else that of the configuration. NULL: exit code set. The caller frees it.
char *configuration_audit_path(const struct flags *flags, int *exit_code);

#endif
