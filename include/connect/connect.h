// The hosted connect flow: users connect their accounts at servers on pages of the gateway.
//
// A caller without a grant gets a connect link (connect/offer.h); its ticket leads to a page that asks for consent, consent
// leads to the authorization server, and the callback leads back here (connect/request.h). The user the link was made
// for, the user that consents and the user that comes back must be one user in one browser. docs/internals/login.md has
// the whole of it.
#ifndef CONNECT_CONNECT_H
#define CONNECT_CONNECT_H

#include "auth/caller/credentials.h"
#include "auth/caller/provider.h"
#include "base/buf.h"
#include "base/err.h"

struct audit;
struct config;
struct connect;
struct grant_store;
struct http_client;
struct loop;
struct server;

// Zero is a refusal.
enum connect_verdict {
    CONNECT_REFUSED,        // `code` and `retry_ms` say why
    CONNECT_WAIT,           // `wait` is resumed, and asks again
    CONNECT_NO_CREDENTIAL,  // the browser shows none
    CONNECT_ADMITTED,
};

// A browser's credentials, and what came of them.
struct connect_admission {
    const struct credentials *credentials;
    struct provider_wait *wait;  // with its callback
    struct identity *identity;   // with a reference; may be set with a refusal too
    enum err_code code;
    int64_t retry_ms;
};

// What the flow needs from above.
struct connect_ops {
    enum connect_verdict (*admit)(void *arg, struct connect_admission *admission);
    bool (*identity_valid)(void *arg, const struct identity *identity);  // it has not been revoked since
    // The user has a grant at a server that had none, or another one than before (also: none any more).
    void (*grant_added)(void *arg, const struct identity *user, const struct server *server);
    void (*grant_changed)(void *arg, const struct identity *user, const struct server *server);
    // The login behind an offer is complete. `elicitation` is that of the offer.
    void (*login_complete)(void *arg, const char *session, const char *elicitation, const struct identity *user);
};

struct connect_parts {
    struct loop *loop;
    struct http_client *http;
    const struct config *config;
    struct grant_store *store;  // NULL: none
    struct audit *audit;        // NULL: none
    const struct connect_ops *ops;
    void *arg;  // of the ops
};

struct connect *connect_new(const struct connect_parts *parts);  // NULL: no server needs it
void connect_free(struct connect *connect);

// Where a user connects an account at this server.
// Another configuration is in force, with the same public_url. What has begun goes on as it began.
void connect_configure(struct connect *connect, const struct config *config);
void connect_put_url(const struct connect *connect, const struct server *server, struct buf *out);

// G2: the client metadata documents that the gateway serves, its own and one for the command line, by path. False: not one
// of them, or the gateway is not at https.
bool connect_document(const struct connect *connect, struct span path, struct buf *out);

// limits.c (H18): how many milliseconds a token request to this issuer has to wait; 0: it may go, and is counted.
int64_t connect_limits_wait_for_issuer(struct connect *connect, const char *issuer);

#endif
