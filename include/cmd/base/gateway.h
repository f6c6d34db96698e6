// A running gateway, asked over its control socket.
#ifndef CMD_BASE_GATEWAY_H
#define CMD_BASE_GATEWAY_H

#include "base/json.h"
#include "cmd/base/options.h"
#include "loop/inherited.h"

// Sends the request (and drops the reference) to the gateway that the options mean: --control, else the socket of the configuration,
// else the default. Reports on stderr which gateway answered. NULL: no gateway answered, or it refused; the exit code is set.
json_t *gateway_ask(const struct flags *flags, json_t *request, int *exit_code);
// The same, of a gateway that runs with the configuration file of the options. NULL with the exit code 0: no such gateway runs.
json_t *gateway_ask_own(const struct flags *flags, json_t *request, int *exit_code);

// Replacing the running gateway of the configuration. The first adds its listening sockets to `inherited` and returns the connection, or -1; if the
// connection is closed, nothing has changed. The second makes the gateway accept no more, and always closes the connection.
// False: it goes on as before.
int gateway_take_over(const struct flags *flags, struct inherited *inherited, struct err *err) MUST_CHECK;
bool gateway_retire(int connection, struct err *err) MUST_CHECK;

#endif
