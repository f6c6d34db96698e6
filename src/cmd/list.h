// The lists of servers, for a command.
#ifndef CMD_LIST_H
#define CMD_LIST_H

#include "cmd/base/client.h"

// A client that has the lists of one server, or of all (NULL), after logins if they are needed and permitted.
struct client *list_load(const struct config *config, const struct flags *flags, const char *server,
                         struct err *err) MUST_CHECK;
// Reports on standard error that the i-th server has no lists; returns the exit code.
int list_fail(const struct client *client, size_t i);

#endif
