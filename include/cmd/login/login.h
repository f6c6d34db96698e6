// Logging in to a server from the command line.
#ifndef CMD_LOGIN_LOGIN_H
#define CMD_LOGIN_LOGIN_H

#include "auth/access/access.h"
#include "cmd/base/options.h"
#include "config/config.h"

extern const struct command login_command, logout_command, logout_command_connections;

// The cause of a login: the challenge of the server.
struct login_cause {
    struct arena arena;
    struct oauth_challenge challenge;
    const char *held_scope;
};

void login_cause_set(struct login_cause *cause, const struct access *access);
void login_cause_release(struct login_cause *cause);

// May this command log in when a server requires it? Without a terminal, --interactive has no effect (F17).
bool login_allowed(const struct flags *flags);
// Logs in and stores the grant; returns the exit code. `cause` may be NULL.
int login_run(const struct config *config, const struct server *server, const struct flags *flags,
              const struct login_cause *cause);

enum { LOGIN_TRIES = 3 };  // logins of one command before it fails (A9)

#endif
