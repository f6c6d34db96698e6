// The connect flow's own objects and functions, by file; each file calls only those that are listed above it.
#ifndef CONNECT_STATE_H
#define CONNECT_STATE_H

#include "auth/grant/attempt.h"
#include "auth/grant/store.h"
#include "auth/login/flow.h"
#include "base/bucket.h"
#include "base/list.h"
#include "config/config.h"
#include "connect/audit.h"
#include "connect/connect.h"
#include "connect/offer.h"
#include "connect/request.h"
#include "loop/loop.h"

struct connect {
    struct connect_parts parts;
    bool secure;
    char *base;  // public_url without a final slash
    char *redirect_uri, *document_url;
    struct connect_offers {
        struct list all;  // struct connect_offer
        size_t count;
        struct connect_offer *watched;  // `watch` asks the store about it
        struct grant_request watch;
        size_t watch_left;  // offers left in this round
    } offers;
    struct list logins;  // struct connect_login
    struct list jobs;    // struct connections_job
    struct connect_limits {
        struct bucket_table opened;     // user -> bucket
        struct bucket_table callbacks;  // address -> bucket
        struct bucket_table issuers;    // issuer -> bucket
        struct bucket_table scopes;     // digest of an operation -> bucket
    } limits;
    struct loop_timer sweep;
    unsigned sweeps;
};

// ---- page.c
void connect_page_show(struct connect_request *request, struct connect_page *page);
void connect_page_show_kind(struct connect_request *request, enum connect_page_kind kind);
void connect_page_show_limited(struct connect_request *request, int64_t retry_ms);
void connect_page_add_cookie(struct connect_page *page, const char *name, const char *value, int64_t max_age);

// ---- csrf.c: a form belongs to a page of this browser, and to one purpose
void connect_csrf_put(const struct connect_request *request, struct span purpose, struct connect_page *page,
                      struct buf *token);
bool connect_csrf_ok(const struct connect_request *request, struct span purpose);

// ---- browser.c: the cookie that binds a login to its browser (H7)
void connect_browser_bind(const struct connect_request *request, struct span state, struct attempt *attempt,
                          struct connect_page *page);
bool connect_browser_is_bound(const struct connect_request *request, struct span state, const struct attempt *attempt);
void connect_browser_unbind(const struct connect_request *request, struct span state, struct connect_page *page);

// ---- limits.c: each returns 0 and counts the use, or returns how many milliseconds to wait (H18)
void connect_limits_init(struct connect_limits *limits);
void connect_limits_release(struct connect_limits *limits);
int64_t connect_limits_open(struct connect *connect, const struct identity *user);
int64_t connect_limits_open_unbound(const struct connect_request *request);
int64_t connect_limits_callback(const struct connect_request *request);
bool connect_limits_scope_left(const struct connect *connect, struct span operation);  // A9: does not count a use
void connect_limits_scope_count(struct connect *connect, struct span operation);

// ---- servers.c: the servers that users connect to
bool connect_servers_needed(const struct config *config);
const struct server *connect_servers_find(const struct config *config, const char *tenant, struct span name);
const struct server *connect_servers_next(const struct config *config, const char *tenant, size_t *at);

// ---- ticket.c
#define CONNECT_SECRET_BYTES 32                                      // of a ticket, and of the cookie of a browser
void connect_ticket_put_state(struct span ticket, struct buf *out);  // the state that belongs to a ticket
// A new attempt with its ticket and state.
struct attempt *connect_ticket_new(const struct connect *connect, const struct identity *identity,
                                   const struct server *server, struct buf *ticket, struct buf *state);

// ---- offer.c
void connect_offer_connected(struct connect *connect, struct span state);  // its login was completed here
void connect_offer_watch(struct connect *connect);  // checks for logins completed in another process
void connect_offer_drop_all(struct connect *connect);

// ---- connections.c
void connections_list(struct connect_request *request);
void connections_disconnect(struct connect_request *request, const struct server *server);
void connections_detach(struct connect_request *request);  // the browser no longer waits
void connections_drop_all(struct connect *connect);

#endif
