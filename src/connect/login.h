// A login while a request of a browser works on it: the attempt of the store, and the page that comes of it.
//
//   stage.c decides by the stage of the attempt ──► authorize.c talks to the authorization server ──► login.c keeps it
#ifndef CONNECT_LOGIN_H
#define CONNECT_LOGIN_H

#include "base/arena.h"
#include "state.h"

struct connect_login {
    struct connect *connect;
    struct list node;
    struct connect_request *request;  // NULL: the browser does not wait any more
    enum connect_op op;
    struct arena arena;
    const char *state;               // what leads to the attempt
    struct oauth_callback callback;  // CONNECT_OP_CALLBACK
    struct peer peer;                // its address alone: it is recorded also when the browser is gone
    struct grant_request stored;
    void (*next)(struct connect_login *login);      // when `stored` is done
    void (*on_found)(struct connect_login *login);  // of stage.c: when the attempt was looked up
    struct attempt *attempt;
    struct identity *identity;    // the user the attempt is for
    const struct config *config;  // that the server is of
    const struct server *server;
    struct login_flow *flow;
    struct connect_page page;  // shown when the attempt is saved
    bool exchanging;           // the callback was accepted: the login goes on even without its browser
    bool found_again;          // another process saved it first, once
};

// ---- login.c
struct connect_login *connect_login_new(struct connect_request *request);
void connect_login_detach(struct connect_request *request);  // the browser does not wait any more
void connect_login_drop_all(struct connect *connect);
// The store: `next` is called when it has answered.
void connect_login_find(struct connect_login *login);  // then on_found
void connect_login_add(struct connect_login *login, const struct attempt *attempt,
                       void (*next)(struct connect_login *login));
void connect_login_save(struct connect_login *login, void (*next)(struct connect_login *login));
bool connect_login_is_saved(struct connect_login *login);  // then the attempt is as it is stored now
void connect_login_set_stage(struct connect_login *login, enum attempt_stage from, enum attempt_stage to);
// The pages: each is the end of the login here, or of a save that ends it.
void connect_login_show_page(struct connect_login *login);  // login->page
void connect_login_show(struct connect_login *login, enum connect_page_kind kind);
void connect_login_show_limited(struct connect_login *login, int64_t retry_ms);
void connect_login_show_not_saved(struct connect_login *login);
void connect_login_reject(struct connect_login *login, enum connect_page_kind kind, const char *reason);
void connect_login_spend(struct connect_login *login, enum connect_page_kind kind, const char *reason);  // and reject
void connect_login_record(const struct connect_login *login, enum connect_event event, const char *reason);
const char *connect_login_issuer(const struct connect_login *login);  // NULL: not known yet

// ---- authorize.c
// Finds the authorization server and its client; then the attempt is saved, and the user is asked.
void connect_authorize_prepare(struct connect_login *login);
bool connect_authorize_restore(struct connect_login *login);  // the login as it was then. False: the page is shown
void connect_authorize_ask(struct connect_login *login);      // shows the consent page
void connect_authorize_consented(struct connect_login *login);
void connect_authorize_exchange(struct connect_login *login);  // the callback

// ---- stage.c: what a browser does with an attempt
void connect_stage_open(struct connect_request *request);                                // OPEN and CONSENT
void connect_stage_callback(struct connect_request *request);                            // CALLBACK
void connect_stage_start(struct connect_request *request, const struct server *server);  // START

#endif
