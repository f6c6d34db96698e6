// Connecting a user's account at a server, on pages of the gateway: what a browser asks for, and which page it gets.
//
// There is no HTTP and no HTML here: a face fills a hosted_visit and renders the hosted_page. A caller without a grant is
// told a connect link; its ticket leads to a page that says what is about to happen, consent leads to the authorization
// server, and the callback back here. Who began, who consented and who comes back must be one user in one browser.
#ifndef GATE_HOSTED_H
#define GATE_HOSTED_H

#include "auth/credentials.h"
#include "auth/identity.h"
#include "auth/provider.h"
#include "base/list.h"
#include "base/option.h"
#include "base/span.h"

struct gate;
struct config;
struct step;
struct errand;

// `hosted` in the configuration.
struct hosted_config {
    bool allow_unbound_tickets;
    int64_t lifetime_ms;
    char **return_to;              // origins; NULL at the end, or NULL
    char **authorization_servers;  // domains; NULL: any
};
extern const struct option_table hosted_options;
// The pages are at public_url, which then must be https, or http to this host. Without it there are none.
bool hosted_url_ok(const struct config *config);

enum hosted_op {
    HOSTED_CONNECTIONS,  // the user's connections
    HOSTED_START,        // of a user we know, with a server's name: makes a ticket
    HOSTED_CONNECT,      // a ticket: what is about to happen
    HOSTED_CONSENT,      // the user says yes or no to that
    HOSTED_CALLBACK,     // back from the authorization server
    HOSTED_DISCONNECT,
};

// Which page. Zero is a failure.
enum hosted_kind {
    HOSTED_FAILED,
    HOSTED_ASKS,       // consent: server, user, issuer, scope, ticket, csrf
    HOSTED_CONTINUES,  // to `url`, at the authorization server
    HOSTED_MOVED,      // to `url`, a path below /oauth/
    HOSTED_CONNECTED,
    HOSTED_RETURNS,  // connected, and on to `url`, which the configuration allows
    HOSTED_DECLINED,
    HOSTED_LISTS,  // connections, csrf
    HOSTED_EXPIRED,
    HOSTED_USED,
    HOSTED_WRONG_USER,
    HOSTED_WRONG_BROWSER,
    HOSTED_STRANGE,      // a callback that belongs to no attempt
    HOSTED_FORGED,       // not sent by a page of ours
    HOSTED_NOBODY,       // who sits there cannot be told
    HOSTED_NO_SCOPE,     // the credential lacks a scope
    HOSTED_UNAVAILABLE,  // who sits there cannot be told now: an issuer is not reachable
    HOSTED_NO_SERVER,    // none of that name that users connect to
    HOSTED_NO_RETURN,    // return_to is not allowed
    HOSTED_LIMITED,
    HOSTED_KINDS,
};

enum hosted_connection_state {
    CONNECTION_NONE,
    CONNECTION_GOOD,
    CONNECTION_ENDED,    // it was, and must be connected again
    CONNECTION_DAMAGED,  // what is stored of it does not open (S7): it must be taken away first
};

struct hosted_connection {
    const char *server, *issuer, *scope;
    enum hosted_connection_state state;
};

enum { HOSTED_COOKIES = 4, HOSTED_COOKIE_NAME = 48 };

struct hosted_cookie {
    char name[HOSTED_COOKIE_NAME], value[64];
    int64_t max_age;  // seconds; 0: it is to be forgotten
};

// Texts may be anything: they are to be escaped. All of it is valid during on_page only.
struct hosted_page {
    enum hosted_kind kind;
    bool secure;  // cookies are for https only
    const char *server, *user, *tenant, *issuer, *scope;
    bool unbound;  // nobody knows who sits there: the user must look twice
    const char *ticket, *csrf;
    const char *url;
    const struct hosted_connection *connections;
    size_t connection_count;
    struct hosted_cookie cookies[HOSTED_COOKIES];
    size_t cookie_count;
    int64_t retry_ms;
};

// One request of a browser. Zeroed but for what it says; it stays until on_page or hosted_gone().
struct hosted_visit {
    enum hosted_op op;
    struct credentials credentials;
    struct span ticket, server, csrf, return_to, query;  // as far as the request has them
    bool agreed;                                         // HOSTED_CONSENT: yes
    const char *(*cookie)(void *arg, const char *name);  // NULL: not sent
    void (*each_cookie)(void *arg, void (*on_cookie)(void *to, const char *name, const char *value), void *to);
    void (*on_page)(struct hosted_visit *visit, const struct hosted_page *page);
    void *arg;
    // the gate's own
    struct gate *gate;
    struct provider_wait auth_wait;
    struct identity *identity;  // who sits there; NULL: it cannot be told
    struct step *step;          // what it waits for, of hosted_step.c
    struct errand *errand;      // and of hosted_grants.c
};

bool gate_hosts(const struct gate *gate);  // is there a server that users connect to?
// G2: the client metadata documents that the gateway serves, its own and one for the command line, by path; false: there is
// none (no https, or another path).
bool hosted_document(struct gate *gate, struct span path, struct buf *out);
#define HOSTED_DOCUMENT_PATH "/oauth/client-metadata.json"
#define HOSTED_NATIVE_DOCUMENT_PATH "/oauth/cli-metadata.json"

void hosted_arrive(struct gate *gate, struct hosted_visit *visit);
void hosted_gone(struct hosted_visit *visit);  // nobody waits for the page any more

#endif
