// `env_file` of a server: lines NAME=VALUE, as many programs read them.
#ifndef CONFIG_ENV_FILE_H
#define CONFIG_ENV_FILE_H

#include "base/err.h"
#include "upstream/server.h"

// Adds the variables to server->env, except those that it has already.
bool env_file_read(struct server *server, struct err *err) MUST_CHECK;

#endif
