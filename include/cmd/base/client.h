// A client for the command line: talks to servers directly, without a gateway, one request at a time.
#ifndef CMD_BASE_CLIENT_H
#define CMD_BASE_CLIENT_H

#include "auth/access/access.h"
#include "base/buf.h"
#include "catalog/view.h"
#include "cmd/base/options.h"
#include "config/config.h"
#include "mcp/method.h"

struct client;

// Selects servers: of one tenant, or of all (NULL); one by its name, or all except disabled ones (NULL). `answers`: a
// form of a server is answered with its own defaults; else it is refused.
struct client_wanted {
    const char *tenant;
    const char *server;
    bool answers;
};

// Turns the log off: the command says what failed.
struct client *client_new(const struct config *config, const struct client_wanted *wanted, struct err *err) MUST_CHECK;
// EXIT_STORE: a refreshed token was lost, which has been reported; else EXIT_OK.
int client_free(struct client *client);
size_t client_count(const struct client *client);
struct upstream *client_upstream(const struct client *client, size_t i);
const struct source *client_source(const struct client *client, size_t i);
const char *client_tenant(const struct client *client, size_t i);
// The last lines that the i-th server wrote to stderr before it failed; "" if it has not failed or wrote nothing.
const char *client_stderr(const struct client *client, size_t i);
// Waits until all lists have arrived or failed. On a terminal, a long wait is reported on stderr (here and in
// client_request()).
void client_load(struct client *client);
// If the i-th server requires a login: its access, with the challenge. Else NULL.
const struct access *client_wants_login(const struct client *client, size_t i);
// Sends one request to the i-th server and waits. `out` gets the raw result.
bool client_request(struct client *client, size_t i, enum method method, struct span params, struct buf *out,
                    struct err *err) MUST_CHECK;

#endif
