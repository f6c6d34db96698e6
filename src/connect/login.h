// A login while a request of a browser works on it: the attempt of the store, and the resulting page.
//
//   stage.c decides by the stage of the attempt ──► authorize.c talks to the authorization server ──► login.c stores it
#ifndef CONNECT_LOGIN_H
#define CONNECT_LOGIN_H

#include "base/arena.h"
#include "state.h"

struct connect_login {
    struct connect *connect;
    struct list node;
    struct connect_request *request;  // NULL: the browser no longer waits
    enum connect_op op;
    struct arena arena;
    const char *state;               // identifies the attempt
    struct oauth_callback callback;  // CONNECT_OP_CALLBACK
    struct peer peer;                // only the address, for audit records after the browser is gone
    struct grant_request stored;
    void (*next)(struct connect_login *login);      // when `stored` is done
    void (*on_found)(struct connect_login *login);  // of stage.c: when the attempt was looked up
    struct attempt *attempt;
    struct identity *identity;    // the user the attempt is for
    const struct config *config;  // the configuration of `server`
    const struct server *server;
    struct login_flow *flow;
    struct connect_page page;  // shown when the attempt is saved
    bool exchanging;           // the callback was accepted: the login goes on even without its browser
    bool found_again;          // another process saved it first; true after one retry
};

// ---- login.c
struct connect_login *connect_login_new(struct connect_request *request);
void connect_login_detach(struct connect_request *request);  // the browser no longer waits
void connect_login_drop_all(struct connect *connect);
// The store: `next` is called when the store is done.
void connect_login_find(struct connect_login *login);  // then on_found
void connect_login_add(struct connect_login *login, const struct attempt *attempt,
                       void (*next)(struct connect_login *login));
void connect_login_save(struct connect_login *login, void (*next)(struct connect_login *login));
bool connect_login_is_saved(struct connect_login *login);  // reads the attempt back as stored
void connect_login_set_stage(struct connect_login *login, enum attempt_stage from, enum attempt_stage to);
// The pages: each one ends the login in this process, some after a save.
void connect_login_show_page(struct connect_login *login);  // login->page
void connect_login_show(struct connect_login *login, enum connect_page_kind kind);
void connect_login_show_limited(struct connect_login *login, int64_t retry_ms);
void connect_login_show_not_saved(struct connect_login *login);
void connect_login_reject(struct connect_login *login, enum connect_page_kind kind, const char *reason);
void connect_login_spend(struct connect_login *login, enum connect_page_kind kind, const char *reason);  // and reject
void connect_login_record(const struct connect_login *login, enum connect_event event, const char *reason);
const char *connect_login_issuer(const struct connect_login *login);  // NULL: not known yet

// ---- authorize.c
// Finds the authorization server and its client, saves the attempt, and shows the consent page.
void connect_authorize_prepare(struct connect_login *login);
bool connect_authorize_restore(struct connect_login *login);  // restores the login. False: a page is shown
void connect_authorize_ask(struct connect_login *login);      // shows the consent page
void connect_authorize_consented(struct connect_login *login);
void connect_authorize_exchange(struct connect_login *login);  // the callback

// ---- stage.c: what a browser does with an attempt
void connect_stage_open(struct connect_request *request);                                // OPEN and CONSENT
void connect_stage_callback(struct connect_request *request);                            // CALLBACK
void connect_stage_start(struct connect_request *request, const struct server *server);  // START

#endif
