// Connect links and the logins that begin with them, shared by the files that own the parts of it.
#ifndef GATE_HOSTED_STATE_H
#define GATE_HOSTED_STATE_H

#include "auth/oauth_flow.h"
#include "bucket.h"
#include "gate/hosted.h"
#include "state.h"

struct call;

enum attempt_state {
    ATTEMPT_OVER,       // used up; kept until it expires, to say so
    ATTEMPT_OFFERED,    // there is a ticket
    ATTEMPT_PREPARING,  // somebody opened it: the authorization server is being found
    ATTEMPT_ASKING,     // the page that asks for consent can be shown
    ATTEMPT_AWAY,       // consent was given, the browser is at the authorization server
    ATTEMPT_FINISHING,  // it came back
};

struct attempt {
    struct hosted *hosted;
    struct list node;  // in hosted->attempts
    enum attempt_state state;
    unsigned char ticket[SECRET_MAC_BYTES];  // digests: what opens them is with the browser only
    unsigned char oauth_state[SECRET_MAC_BYTES];
    unsigned char cookie[SECRET_MAC_BYTES];
    bool has_state;
    struct identity *identity;
    const struct server *server;
    char session[SESSION_ID_LEN + 1];      // who is told when it is done; "": nobody
    char elicitation[SESSION_ID_LEN + 1];  // how that caller knows it; "": it was not asked that way
    int64_t expires_ms;
    struct arena arena;
    struct oauth_challenge challenge;
    const char *held_scope;
    struct oauth_flow *flow;
    const char *url;      // at the authorization server
    struct list waiting;  // visits
};

struct hosted {
    struct gate *gate;
    bool secure;
    char *base;  // public_url without a slash at its end
    char *redirect_uri, *document_url;
    struct list attempts;  // oldest first
    size_t count;
    struct map by_ticket, by_state;  // digest -> attempt
    struct list errands;             // struct errand, of hosted_grants.c
    struct bucket_table opened;      // user -> bucket (H18)
    struct bucket_table returned;    // address -> bucket
    struct bucket_table issuers;     // issuer -> bucket
    struct loop_timer sweep;
};

struct hosted *hosted_new(struct gate *gate);  // NULL: no server needs it
void hosted_free(struct hosted *hosted);

// A call ended with ERR_LOGIN: puts a connect link into its error, in the way its caller understands.
void hosted_tell(struct call *call);
// Where a user connects this server, for the instructions of a session; nothing if it is connected, or not that kind.
void hosted_put_hint(const struct link *link, struct buf *out);

// ---- hosted.c
struct attempt *attempt_new(struct hosted *hosted, const struct identity *identity, const struct server *server,
                            struct buf *ticket);
struct attempt *attempt_find(const struct map *map, struct span secret);
void attempt_prepare(struct attempt *attempt);
void attempt_end(struct attempt *attempt);
void attempt_show(struct attempt *attempt, enum hosted_kind kind);  // to all who wait
// What the user has granted at this server is not what it was.
void hosted_grant_changed(struct hosted *hosted, const struct identity *identity, const struct server *server);

// ---- hosted_visit.c
void visit_show(struct hosted_visit *visit, struct hosted_page *page);
void visit_show_attempt(struct hosted_visit *visit, const struct attempt *attempt, enum hosted_kind kind);
void hosted_put_csrf(struct hosted_visit *visit, struct span about, struct hosted_page *page, struct buf *token);
bool hosted_csrf_ok(const struct hosted_visit *visit, struct span about);
const struct server *hosted_server(const struct gate *gate, const struct identity *identity, struct span name);

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
void hosted_audit(const struct gate *gate, const struct hosted_record *record);

#endif
