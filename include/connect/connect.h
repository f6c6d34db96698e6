// The hosted connect flow: users connect their accounts at servers on pages of the gateway.
//
// A caller without a grant gets a connect link (connect/offer.h); its ticket leads to a page that asks for consent, consent
// leads to the authorization server, and the callback leads back here (connect/request.h). The user the link was made
// for, the user that consents and the user that comes back must be one user in one browser. docs/internals/connect.md
// describes the whole flow.
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
    CONNECT_WAIT,           // `wait` is resumed; then ask again
    CONNECT_NO_CREDENTIAL,  // the browser sent none
    CONNECT_ADMITTED,
};

// A browser's credentials, and the result of their authentication.
struct connect_admission {
    const struct credentials *credentials;
    struct provider_wait *wait;  // with its callback
    struct identity *identity;   // with a reference; may be set with a refusal too
    enum err_code code;
    int64_t retry_ms;
};

// The functions that the layer above provides.
struct connect_ops {
    enum connect_verdict (*admit)(void *arg, struct connect_admission *admission);
    bool (*identity_valid)(void *arg, const struct identity *identity);  // false: it has been revoked
    // The user has a grant at a server for the first time, or another grant than before (or no longer any).
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

// Puts another configuration with the same public_url in force. Logins in progress continue with the old one.
void connect_configure(struct connect *connect, const struct config *config);
// Appends the URL where a user connects an account at this server.
void connect_put_url(const struct connect *connect, const struct server *server, struct buf *out);

// G2: the client metadata documents that the gateway serves, its own and one for the command line, by path. False: another
// path, or public_url is not https.
bool connect_document(const struct connect *connect, struct span path, struct buf *out);

// limits.c (H18): how many milliseconds a token request to this issuer has to wait; 0: it may be sent, and is counted.
int64_t connect_limits_wait_for_issuer(struct connect *connect, const char *issuer);

#endif
