// What the files of a login at the command line share.
//
//   login.c    the command: turn, listener, flow, what is told to the person
//   hint.c     where the tokens of well-known services are made
//   browser.c  sending the person, or a GET, to the authorization server; what comes back by pasting
//   attempt.c  a login in two commands, for scripts: --start saves it as an attempt, --finish resumes it
//   turn.c     whose turn it is, of all processes
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
    bool device;         // a code is entered elsewhere: no listener
    char *user;          // whose grant it will be
    struct grant *held;  // the grant for this server that was there before; NULL: none
    struct login_turn turn;
    struct loop_timer again;  // until it is our turn
    bool opened;              // a browser was started
    struct login_callback *callback;
    unsigned port;       // of it, as it was chosen; 0: any
    char *redirect_uri;  // where there is no listener (--start, --headless)
    struct login_flow *flow;
    struct loop_timer deadline;  // while a person is waited for: requests have timeouts of their own
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
    char id[48];  // and the state that the authorization server sends back
    int code;
};

// ---- login.c --------------------------------------------------------------------------------

void login_finish(struct login *login, int code);
bool login_take_query(struct login *login, struct span query);  // false: it is not for this login
struct login_flow_spec login_spec(struct login *login);
const char *login_redirect(const struct login *login);  // the redirect URI; NULL: --device, --finish

// ---- browser.c ------------------------------------------------------------------------

void login_browser_open(struct login *login, const char *url);
// L5, L6: the program to start: the chosen one, $BROWSER, or xdg-open if a window would open; NULL: none. What marks a
// container is looked for below `root`, which is "" but in tests.
const char *login_browser_program(const char *chosen, const char *root);
// L9: from here on the login waits for a person, for its time at most; on a terminal it tells how long it still waits.
void login_browser_await(struct login *login);
void login_browser_watch_terminal(struct login *login);

// ---- hint.c ---------------------------------------------------------------------------

// Says where a token can be had, when the server has no usable OAuth.
void login_hint_instead(const struct server *server, bool by_url);
// Where a token for this server is made, if it is a well-known one; false: it is not known.
bool login_hint(const char *server_url, const char **what, const char **where);

// ---- token.c --------------------------------------------------------------------------------

// Stores a token from standard input instead; the exit code.
int login_token_store(const struct config *config, const struct server *server, const struct flags *flags);
#define LOGIN_TOKEN_ISSUER "manual"

// ---- attempt.c ------------------------------------------------------------------------

void login_attempt_new_id(struct login *login);                 // --start: before the flow
void login_attempt_save(struct login *login, const char *url);  // --start: keeps the login and tells the address
bool login_attempt_resume(struct login *login);                 // --finish: false with the exit code set

#endif
