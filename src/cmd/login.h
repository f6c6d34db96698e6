// Logging in to a server from the command line, and the store that its grants are kept in.
#ifndef CMD_LOGIN_H
#define CMD_LOGIN_H

#include "auth/access.h"
#include "cmd.h"

// Why a login is needed, as the server said it.
struct login_cause {
    struct arena arena;
    struct oauth_challenge challenge;
    const char *held_scope;
};

void login_cause_set(struct login_cause *cause, const struct access *access);
void login_cause_release(struct login_cause *cause);

// May this command log in when a server asks for it? --interactive is for people: without a terminal it does nothing (F17).
bool login_allowed(const struct flags *flags);
// Logs in and stores the grant; the exit code. `cause` may be NULL.
int login_run(const struct config *config, const struct server *server, const struct flags *flags,
              const struct login_cause *cause);

// Stores a token from standard input instead; the exit code.
int login_with_token(const struct config *config, const struct server *server, const struct flags *flags);
// Where a token for this server is made, if it is a well-known one; false: who knows.
bool login_hint(const char *server_url, const char **what, const char **where);
#define LOGIN_TOKEN_ISSUER "manual"

// The token store of this configuration (NULL: none, the usual places). Without `make` a store that is not there yet is none: *out is NULL.
bool login_store_open(const struct config *config, struct loop *loop, bool make, struct token_store **out,
                      struct err *err) MUST_CHECK;
// Closes it, and says on standard error if a refreshed token is not stored yet, for which it waits, or is lost (F10): then
// EXIT_STORE, else EXIT_OK.
int login_store_close(struct token_store *store, struct loop *loop);
// False, with the exit code set: the store is a seed (S11), so there is no use in changing it.
bool login_store_lasts(const struct config *config, int *code);
const char *login_tenant(const struct flags *flags);
// Whose grants: of --subject PROVIDER:NAME, else the command line's own. NULL: it is written wrongly. The caller frees it.
char *login_user(const struct flags *flags);
// The server that SERVER or --url names, in --tenant; NULL with the exit code set.
const struct server *login_server(const struct config *config, const struct flags *flags, int *code);

enum { LOGIN_TRIES = 3 };  // of one command, before it is given up (A9)

#endif
