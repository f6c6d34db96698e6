// A running gateway, asked over its control socket.
#ifndef CMD_BASE_GATEWAY_H
#define CMD_BASE_GATEWAY_H

#include "base/json.h"
#include "cmd/base/options.h"

// Sends the request (and drops the reference) to the gateway that the options mean: --control, else the socket of the configuration,
// else the default. Reports on stderr which gateway answered. NULL: no gateway answered, or it refused; the exit code is set.
json_t *gateway_ask(const struct flags *flags, json_t *request, int *exit_code);
// The same, of a gateway that runs with the configuration file of the options. NULL with the exit code 0: no such gateway runs.
json_t *gateway_ask_own(const struct flags *flags, json_t *request, int *exit_code);

#endif
