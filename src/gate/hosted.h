// Connect links and the logins that begin with them, shared by the files that own the parts of it.
#ifndef GATE_HOSTED_STATE_H
#define GATE_HOSTED_STATE_H

#include "auth/attempt.h"
#include "auth/oauth_flow.h"
#include "bucket.h"
#include "gate/hosted.h"
#include "state.h"

struct call;

struct hosted {
    struct gate *gate;
    bool secure;
    char *base;  // public_url without a slash at its end
    char *redirect_uri, *document_url;
    struct list offers;  // struct offer, of hosted_offer.c
    size_t offer_count;
    struct offer *watched;  // the one that `watch` asks about
    struct token_request watch;
    size_t watch_left;             // still to be asked about in this round
    struct list steps;             // struct step, of hosted_step.c
    struct list errands;           // struct errand, of hosted_grants.c
    struct bucket_table opened;    // user -> bucket (H18)
    struct bucket_table returned;  // address -> bucket
    struct bucket_table issuers;   // issuer -> bucket
    struct bucket_table widened;   // digest of an operation -> bucket (A9)
    struct loop_timer sweep;
    unsigned sweeps;
};

struct hosted *hosted_new(struct gate *gate);  // NULL: no server needs it
void hosted_free(struct hosted *hosted);
// What the user has granted at this server is not what it was.
void hosted_grant_changed(struct hosted *hosted, const struct identity *identity, const struct server *server);

// ---- hosted_offer.c: links that callers are told
// A call ended with ERR_LOGIN: puts a connect link into its error, in the way its caller understands. True: it is being
// made, and call_resume() will come.
bool hosted_tell(struct call *call);
void hosted_untell(struct call *call);  // it is over
// Where a user connects this server, for the instructions of a session; nothing if it is connected, or not that kind.
void hosted_put_hint(const struct link *link, struct buf *out);
// A new attempt with its ticket, and the state that leads to it.
struct attempt *hosted_attempt_new(const struct hosted *hosted, const struct identity *identity,
                                   const struct server *server, struct buf *ticket, struct buf *state);
void hosted_put_state(struct span ticket, struct buf *out);        // the state that belongs to a ticket
void hosted_offer_done(struct hosted *hosted, struct span state);  // it was connected here
void hosted_offers_watch(struct hosted *hosted);                   // and elsewhere?
void hosted_offers_drop(struct hosted *hosted);

// ---- hosted_visit.c
void visit_show(struct hosted_visit *visit, struct hosted_page *page);
void hosted_put_csrf(struct hosted_visit *visit, struct span about, struct hosted_page *page, struct buf *token);
bool hosted_csrf_ok(const struct hosted_visit *visit, struct span about);
const struct server *hosted_server(const struct gate *gate, const struct identity *identity, struct span name);
// H7: the cookie that binds a login to its browser.
void hosted_bind_browser(const struct hosted_visit *visit, struct span state, struct attempt *attempt,
                         struct hosted_page *page);
bool hosted_is_that_browser(const struct hosted_visit *visit, struct span state, const struct attempt *attempt);
void hosted_unbind_browser(const struct hosted_visit *visit, struct span state, struct hosted_page *page);
// 0: go on, and it is counted; else how long to wait.
int64_t hosted_wait_in(struct bucket_table *table, const struct bucket_rate *rate, struct span key, int64_t now);
// H18: the same.
int64_t hosted_wait_to_open(const struct hosted_visit *visit, const struct identity *user);
int64_t hosted_wait_for_issuer(const struct gate *gate, const char *issuer);

// ---- hosted_step.c: what a browser does with an attempt
void hosted_step(struct hosted_visit *visit, struct span state);             // HOSTED_CONNECT, _CONSENT and _CALLBACK
void hosted_begin(struct hosted_visit *visit, const struct server *server);  // HOSTED_START
void step_visit_gone(struct hosted_visit *visit);
void hosted_steps_drop(struct hosted *hosted);

// ---- hosted_grants.c: connections and disconnecting
void hosted_list(struct hosted_visit *visit);
void hosted_disconnect(struct hosted_visit *visit, const struct server *server);
void hosted_errands_drop(struct hosted *hosted);
void errand_visit_gone(struct hosted_visit *visit);

// ---- hosted_record.c: H17
enum hosted_event {
    HOSTED_EVENT_STARTED,
    HOSTED_EVENT_SHOWN,
    HOSTED_EVENT_GIVEN,
    HOSTED_EVENT_OK,
    HOSTED_EVENT_REJECTED,
    HOSTED_EVENT_REVOKED,
    HOSTED_EVENT_REFRESHED,
    HOSTED_EVENT_NOT_REFRESHED,
};
struct hosted_record {
    enum hosted_event event;
    const struct identity *identity;
    const struct server *server;
    const char *issuer, *reason;
    const struct peer *peer;
    const char *tenant;  // without an identity: of the grant that all of it share
};
// Where a visit came from, for a record that may be made when it is gone.
void hosted_keep_address(const struct hosted_visit *visit, struct peer *out);
void hosted_audit(const struct gate *gate, const struct hosted_record *record);

#endif
