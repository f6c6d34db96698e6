// Shared by the files of a login at the command line.
//
//   login.c    the command: turn, listener, flow, messages to the user
//   hint.c     where well-known services issue tokens
//   browser.c  sending the user, or a GET, to the authorization server; pasted answers
//   attempt.c  a login in two commands, for scripts: --start saves it as an attempt, --finish resumes it
//   turn.c     the turn at a login among all processes
#ifndef LOGIN_STATE_H
#define LOGIN_STATE_H

#include "auth/grant/store.h"
#include "auth/login/flow.h"
#include "cmd/login/login.h"
#include "front/login_callback.h"
#include "turn.h"

#define LOGIN_STORE_MS 5000
#define LOGIN_PASTE_MAX 16384

struct login {
    struct loop *loop;
    struct http_client *http;
    struct grant_store *store;
    const struct config *config;
    const struct server *server;
    const struct flags *flags;
    bool device;         // a code is entered on another device: no listener
    char *user;          // owner of the grant
    struct grant *held;  // the earlier grant for this server; NULL: none
    struct login_turn turn;
    struct loop_timer again;  // while waiting for the turn
    bool opened;              // a browser was started
    struct login_callback *callback;
    unsigned port;       // chosen port of the callback; 0: any
    char *redirect_uri;  // without a listener (--start, --headless)
    struct login_flow *flow;
    struct loop_timer deadline;  // while waiting for the user: requests have timeouts of their own
    int64_t timeout_ms, ends_ms;
    struct loop_timer tick;
    struct loop_watch terminal;
    struct buf pasted;
    // the built-in browser
    struct http_target *page;
    struct http_transfer *transfer;
    int status;
    char *location;
    // --start
    struct grant_request request;
    char *url;
    char id[48];  // also the state that the authorization server sends back
    int code;
};

// ---- login.c --------------------------------------------------------------------------------

void login_finish(struct login *login, int code);
bool login_take_query(struct login *login, struct span query);  // false: the query is not for this login
struct login_flow_spec login_spec(struct login *login);
const char *login_redirect(const struct login *login);  // the redirect URI; NULL: --device, --finish

// ---- browser.c ------------------------------------------------------------------------

void login_browser_open(struct login *login, const char *url);
// L5, L6: the program to start: the chosen one, $BROWSER, or xdg-open if a window can open; NULL: none. Signs of a
// container are looked for below `root`, which is "" except in tests.
const char *login_browser_program(const char *chosen, const char *root);
// L9: from here on the login waits for the user, until its deadline; on a terminal it shows the remaining time.
void login_browser_await(struct login *login);
void login_browser_watch_terminal(struct login *login);

// ---- hint.c ---------------------------------------------------------------------------

// Prints where to get a token if the server has no usable OAuth.
void login_hint_instead(const struct server *server, bool by_url);
// Where a well-known service issues tokens; false: the server is not known.
bool login_hint(const char *server_url, const char **what, const char **where);

// ---- token.c --------------------------------------------------------------------------------

// Stores a token from standard input instead; returns the exit code.
int login_token_store(const struct config *config, const struct server *server, const struct flags *flags);
#define LOGIN_TOKEN_ISSUER "manual"

// ---- attempt.c ------------------------------------------------------------------------

void login_attempt_new_id(struct login *login);                 // --start: before the flow
void login_attempt_save(struct login *login, const char *url);  // --start: stores the login and prints the address
bool login_attempt_resume(struct login *login);                 // --finish: false with the exit code set

#endif
