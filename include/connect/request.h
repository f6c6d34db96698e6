// One request of a browser for a page of the connect flow, and the resulting page. The HTTP face fills a connect_request and
// renders the connect_page: HTTP and HTML do not occur below it.
#ifndef CONNECT_REQUEST_H
#define CONNECT_REQUEST_H

#include "auth/caller/credentials.h"
#include "auth/caller/identity.h"
#include "auth/caller/provider.h"
#include "base/span.h"

struct connect;
struct connect_login;
struct connections_job;

enum connect_op {
    CONNECT_OP_LIST,      // the user's connections
    CONNECT_OP_START,     // an authenticated user names a server: makes a ticket
    CONNECT_OP_OPEN,      // a ticket: shows the server and user to connect
    CONNECT_OP_CONSENT,   // the user consents or declines
    CONNECT_OP_CALLBACK,  // back from the authorization server
    CONNECT_OP_DISCONNECT,
};

// The kind of a page. Zero is a failure.
enum connect_page_kind {
    CONNECT_PAGE_FAILED,
    CONNECT_PAGE_CONSENT,    // asks the user: server, user, issuer, scope, ticket, csrf
    CONNECT_PAGE_AUTHORIZE,  // on to `url`, at the authorization server
    CONNECT_PAGE_REDIRECT,   // to `url`, a path below /oauth/
    CONNECT_PAGE_CONNECTED,
    CONNECT_PAGE_RETURN,  // connected, and on to `url`, which the configuration allows
    CONNECT_PAGE_DECLINED,
    CONNECT_PAGE_LIST,  // connections, csrf
    CONNECT_PAGE_EXPIRED,
    CONNECT_PAGE_USED,
    CONNECT_PAGE_WRONG_USER,
    CONNECT_PAGE_WRONG_BROWSER,
    CONNECT_PAGE_UNKNOWN_LOGIN,    // a callback that belongs to no attempt
    CONNECT_PAGE_FORGED,           // not sent by a page of the gateway
    CONNECT_PAGE_UNAUTHENTICATED,  // the browser shows no credential, or one that is not accepted
    CONNECT_PAGE_NO_SCOPE,         // the credential lacks a scope
    CONNECT_PAGE_UNAVAILABLE,      // the credential cannot be checked now: an issuer is not reachable
    CONNECT_PAGE_NO_SERVER,        // users cannot connect to a server of that name
    CONNECT_PAGE_NO_RETURN,        // return_to is not allowed
    CONNECT_PAGE_LIMITED,
    CONNECT_PAGE_KINDS,
};

enum connection_state {
    CONNECTION_NONE,
    CONNECTION_GOOD,
    CONNECTION_ENDED,    // it must be connected again
    CONNECTION_DAMAGED,  // the stored grant cannot be decrypted (S7): it must be disconnected first
};

struct connection {
    const char *server, *issuer, *scope;
    enum connection_state state;
};

enum { CONNECT_COOKIES = 4, CONNECT_COOKIE_NAME = 48 };

struct connect_cookie {
    char name[CONNECT_COOKIE_NAME], value[64];
    int64_t max_age;  // seconds; 0: the browser deletes it
};

// Texts are not escaped. Everything is valid during on_page only.
struct connect_page {
    enum connect_page_kind kind;
    bool secure;  // cookies are for https only
    const char *server, *user, *tenant, *issuer, *scope;
    bool unbound;  // the browser is not authenticated: the user must check whose account is connected
    const char *ticket, *csrf;
    const char *url;
    const struct connection *connections;
    size_t connection_count;
    struct connect_cookie cookies[CONNECT_COOKIES];
    size_t cookie_count;
    int64_t retry_ms;
};

// Zeroed except for the data of the browser and the callbacks; it stays until on_page or connect_request_cancel().
struct connect_request {
    enum connect_op op;
    struct credentials credentials;
    struct span ticket, server, csrf, return_to, query;  // as far as the request has them
    bool agreed;                                         // CONNECT_OP_CONSENT: yes
    const char *(*cookie)(void *arg, const char *name);  // NULL: not sent
    void (*each_cookie)(void *arg, void (*on_cookie)(void *to, const char *name, const char *value), void *to);
    void (*on_page)(struct connect_request *request, const struct connect_page *page);
    void *arg;
    // private to the flow
    struct connect *connect;
    struct provider_wait auth_wait;
    struct identity *identity;    // of the browser; NULL: not authenticated
    struct connect_login *login;  // the work in login.c that the browser waits for,
    struct connections_job *job;  // or of connections.c
};

void connect_request_start(struct connect *connect, struct connect_request *request);
void connect_request_cancel(struct connect_request *request);  // the browser does not wait for the page any more

#endif
