// A client for the command line: servers without a gateway in between, one request at a time.
#ifndef CMD_CLIENT_H
#define CMD_CLIENT_H

#include "base/buf.h"
#include "catalog/view.h"
#include "gate/config.h"
#include "mcp/method.h"

struct client;
struct login_cause;

// Connects to the named server, or to all that are not disabled when name is NULL. `answers`: a server that asks for input
// gets the defaults it names itself; else it is told that nobody answers.
// Says that there is no such server, and which one may be meant.
const struct err *client_unknown(const struct config *config, const char *name, struct err *err);
struct client *client_new(const struct config *config, const char *name, bool answers, struct err *err) MUST_CHECK;
int client_free(struct client *client);  // EXIT_STORE: a refreshed token was lost, which has been told; else EXIT_OK
size_t client_count(const struct client *client);
struct upstream *client_upstream(const struct client *client, size_t i);
const struct source *client_source(const struct client *client, size_t i);
void client_load(struct client *client);  // waits until all lists are there, or failed
// Does the i-th server want a login? Then `cause` gets what it said; release it with login_cause_release().
bool client_wants_login(const struct client *client, size_t i, struct login_cause *cause);
// Sends one request to the i-th server and waits. `out` gets the raw result.
bool client_request(struct client *client, size_t i, enum method method, struct span params, struct buf *out,
                    struct err *err) MUST_CHECK;

#endif
