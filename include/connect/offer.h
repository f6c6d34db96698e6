// An offer: a connect link made for a call that failed for want of a grant.
//
// The link is stored first; then the call is given its URL. The offer stays until the link is used or expires, so that the
// session of the call can be notified.
#ifndef CONNECT_OFFER_H
#define CONNECT_OFFER_H

#include "base/span.h"
#include <stdbool.h>

struct access;
struct config;
struct connect;
struct connect_offer;
struct identity;
struct server;

enum {
    CONNECT_OFFER_ID = 43,             // characters of a session or elicitation id
    CONNECT_OFFER_SCOPE_REQUESTS = 3,  // A9: how often a user is asked for more scope for one operation
};

enum connect_offer_verdict {
    CONNECT_OFFER_NONE,           // too many links are being made
    CONNECT_OFFER_SCOPE_REFUSED,  // the server keeps requiring more scope: connecting does not help
    CONNECT_OFFER_STARTED,
};

struct connect_offer_spec {
    const struct identity *identity;
    const struct config *config;
    const struct server *server;  // of that configuration
    const struct access *access;  // the access with which the call was refused
    bool ready;                   // the server was ready with a grant, which it then refused
    const char *method;           // the operation that was refused
    struct span target;
    const char *session, *elicitation;              // for login_complete(); elicitation "": the session is not notified
    void (*on_stored)(void *arg, const char *url);  // called once; NULL: the link could not be made
    void *arg;
};

enum connect_offer_verdict connect_offer_start(struct connect *connect, const struct connect_offer_spec *spec,
                                               struct connect_offer **out);
void connect_offer_drop(struct connect_offer *offer);  // before on_stored: the call is over

#endif
