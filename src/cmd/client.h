// A client for the command line: servers without a gateway in between, one request at a time.
#ifndef CMD_CLIENT_H
#define CMD_CLIENT_H

#include "base/buf.h"
#include "catalog/view.h"
#include "cmd.h"
#include "gate/config.h"
#include "mcp/method.h"

struct client;
struct login_cause;

// Which servers: of one tenant, or of all (NULL); one by its name, or all that are not disabled (NULL). `answers`: a server
// that asks for input gets the defaults it names itself; else the request is refused.
struct client_wanted {
    const char *tenant;
    const char *server;
    bool answers;
};

// The configuration of the file; with --url, a single server named "url" that gets the token of --token-file or
// $POSTERN_TOKEN. NULL: exit code set.
struct config *client_config(const struct flags *flags, int *exit_code);
// The server of this name. NULL: the error says which name or which --tenant may be meant.
const struct server *client_find(const struct config *config, const char *tenant, const char *name,
                                 struct err *err) MUST_CHECK;
struct client *client_new(const struct config *config, const struct client_wanted *wanted, struct err *err) MUST_CHECK;
int client_free(struct client *client);  // EXIT_STORE: a refreshed token was lost, which has been told; else EXIT_OK
size_t client_count(const struct client *client);
struct upstream *client_upstream(const struct client *client, size_t i);
const struct source *client_source(const struct client *client, size_t i);
const char *client_tenant(const struct client *client, size_t i);
// What the i-th server last wrote to stderr before it failed; "" if it has not failed or wrote nothing.
const char *client_stderr(const struct client *client, size_t i);
// Waits until all lists are there, or failed. On a terminal, what is waited for is shown on stderr (here and in
// client_request()).
void client_load(struct client *client);
// Does the i-th server want a login? Then `cause` gets what it said; release it with login_cause_release().
bool client_wants_login(const struct client *client, size_t i, struct login_cause *cause);
// Sends one request to the i-th server and waits. `out` gets the raw result.
bool client_request(struct client *client, size_t i, enum method method, struct span params, struct buf *out,
                    struct err *err) MUST_CHECK;

#endif
