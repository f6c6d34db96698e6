// A small HTTP listener on loopback that waits for a browser to come back from a login.
//
// Only GET of the one path counts; everything else gets an answer and changes nothing (B1). The page that ends a login
// is sent when the login has ended, not when the browser comes back (B8).
#ifndef FRONT_CALLBACK_H
#define FRONT_CALLBACK_H

#include "base/err.h"
#include "base/span.h"
#include "loop/loop.h"

struct callback;

struct callback_spec {
    struct loop *loop;
    const char *host;                // 127.0.0.1, localhost (both families) or ::1
    unsigned first_port, last_port;  // tried in order; 0: any that is free
    // The query of a callback. True: the browser waits until callback_finish(); false: it was not for us.
    bool (*on_query)(void *arg, struct span query);
    void *arg;
};

struct callback *callback_open(const struct callback_spec *spec, struct err *err) MUST_CHECK;
const char *callback_uri(const struct callback *callback);
// The redirect URI of a listener there, open or not. The caller frees it.
char *callback_uri_at(const char *host, unsigned port);
unsigned callback_port(const struct callback *callback);
// Shows the browser that waits, if one does, how it ended. After CALLBACK_AGAIN the next one may come.
enum callback_end { CALLBACK_FAILED, CALLBACK_AGAIN, CALLBACK_GRANTED };
void callback_finish(struct callback *callback, enum callback_end end);
void callback_free(struct callback *callback);  // what was answered is sent first, for a moment

#endif
