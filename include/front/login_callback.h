// A small HTTP listener on loopback that waits for the browser to return from a login.
//
// Only GET of the callback path has an effect; any other request gets an answer and changes nothing (B1). The final page
// is sent when the login has ended, not when the browser returns (B8).
#ifndef FRONT_LOGIN_CALLBACK_H
#define FRONT_LOGIN_CALLBACK_H

#include "base/err.h"
#include "base/span.h"
#include "loop/loop.h"

struct login_callback;

struct login_callback_spec {
    struct loop *loop;
    const char *host;                // 127.0.0.1, localhost (both families) or ::1
    unsigned first_port, last_port;  // tried in order; 0: any free port
    // Passes the query of a callback. True: the browser waits until login_callback_finish(). False: not a callback of this
    // login.
    bool (*on_query)(void *arg, struct span query);
    void *arg;
};

struct login_callback *login_callback_open(const struct login_callback_spec *spec, struct err *err) MUST_CHECK;
const char *login_callback_uri(const struct login_callback *callback);
// The redirect URI of a listener at this host and port, whether it is open or not. The caller frees it.
char *login_callback_uri_at(const char *host, unsigned port);
unsigned login_callback_port(const struct login_callback *callback);
// Shows the outcome to the waiting browser, if there is one. After LOGIN_CALLBACK_AGAIN another callback is accepted.
enum login_callback_end { LOGIN_CALLBACK_FAILED, LOGIN_CALLBACK_AGAIN, LOGIN_CALLBACK_GRANTED };
void login_callback_finish(struct login_callback *callback, enum login_callback_end end);
void login_callback_free(struct login_callback *callback);  // waits briefly until answers are sent

#endif
