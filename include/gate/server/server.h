// Servers as the gate uses them: links and scopes, which sessions have to do with them, and the shape of what they say.
#ifndef GATE_SERVER_SERVER_H
#define GATE_SERVER_SERVER_H

#include "gate/session/call.h"

// ---- link.c
void link_close_all(struct gate *gate, int64_t within_ms);
void link_recheck_all(struct gate *gate);  // grants may have been deleted by another process
// After a reload: links to servers that were removed or changed are taken out of gate->links. They last until the calls at
// them are over, or timeouts.shutdown.
void link_retire_stale(struct gate *gate);
bool link_is_of(const struct link *link, const struct tenant *tenant, const char *server);
// For an operator: the links of one server are retired, whether or not anything has changed; and those that replace them are
// started, unless they are of one user or session.
void link_retire_server(const struct tenant *tenant, const char *server);
void link_start_server(const struct tenant *tenant, const char *server);
void link_sweep_retired(struct gate *gate);

// ---- scope.c
struct scope *scope_get(struct gate *gate, struct session *session);
void scope_release(struct scope *scope);
// Of its scope, as far as the session has to do with them:
void scope_warm(const struct session *session, bool own_too);  // starts servers; those of one session only when needed
void scope_look_again(const struct session *session);          // those that wanted a login: perhaps there was one
struct link *scope_link(const struct scope *scope, const struct source *source);
void scope_release_all(struct gate *gate);
// After a reload: scopes that are not what the configuration says now are detached, which session_life_move() follows.
void scope_detach_stale(struct gate *gate);

// ---- process.c
bool process_may_start(struct link *link, struct err *err) MUST_CHECK;  // counts it, unless there are too many
void process_ended(struct link *link);                                  // harmless if it was not counted

// ---- visibility.c: which servers have to do with a session
bool visibility_allowed(const struct session *session, const struct link *link);  // the server may learn of the session
bool visibility_sees(struct session *session, const struct link *link);           // what the server says may reach it

// ---- known.c: what servers declared, also those of one user or session that are not up yet
void known_note(struct link *link);  // its lists are there, or it is ready anew
struct span known_instructions(const struct link *link, const struct session *session);  // decoded; empty if none
struct span known_declared(const struct link *link, const struct session *session);      // capabilities, raw; or empty
void known_release_all(struct gate *gate);

// ---- notice.c
// A notification of a server as this session should see it, with what stands for its `requestId` or `progressToken`.
struct blob *notice_text(const struct session *session, const struct link *link, enum method method, struct span params,
                         struct span id);

// ---- task.c
struct task_owner {
    struct identity *identity;
    char session[SESSION_ID_LEN + 1];  // decides alone who owns the tasks of callers nobody can tell apart
};
// What the ids of one server and owner are sealed with.
struct task_seal {
    struct span server, link_key;
    const unsigned char *secret;  // GATE_KEY_BYTES
    const struct identity *owner;
};
struct link *task_unwrap(struct scope *scope, const struct identity *owner, struct span wrapped, struct buf *id);
void task_note_made(struct call *call, struct span raw_id);  // its server made one for this call
bool task_owned(const struct link *link, const struct session *session, struct span id);
bool task_known(const struct link *link, struct span id);                         // it has an owner
bool task_related(const struct link *link, struct span params, struct buf *out);  // id of the task they belong to
void task_release_all(struct gate *gate);

// ---- shape.c: names and URIs between a server and a caller
// All that the translation depends on. It is valid while the objects are that it was made of; a copy needs none of them.
struct shape {
    enum method method;  // of the notification or question, or of the request that it answers
    struct span prefix;  // of URIs; empty: they stay as they are
    bool tasks;          // the server has tasks
    struct task_seal seal;
    struct span id;  // raw, for the `requestId` of a cancellation or the `progressToken` of progress
};
struct shape shape_of(const struct scope *scope, const struct link *link, const struct identity *identity,
                      enum method method);
// A result, params or error object of a server as this caller should see it; true if `out` got it.
bool shape_from_server(const struct shape *shape, struct span json, struct buf *out);
bool shape_error_from_server(const struct shape *shape, struct span json, struct buf *out);
// Puts `retryAfterMs` into the data of an error. False: the error stays as it is, for it has one, or data of another
// kind.
bool shape_put_retry(struct span error, int64_t retry_ms, struct buf *out);
// The same for a large one, which is shared and not copied: `out` gets it, changed or not. It may run on a worker thread.
bool shape_changes(const struct shape *shape, bool error);  // false: nothing in it, so nobody needs to look
void shape_shared(const struct shape *shape, bool error, struct blob *owner, struct span json, struct pieces *out);
// What a caller answered, as the server should see it; true if `out` got it.
bool shape_answer(const struct session *session, const struct link *link, struct span json, struct buf *out);

// ---- outgoing.c: the params of a caller's message, on their way to a server
// A value in the params, and what the server gets in its place.
struct outgoing_swap {
    struct span old;   // at is NULL: nothing is replaced
    struct span with;  // raw JSON, or
    bool text;         // characters
};

// The id of the task that the message says it belongs to, if it does. False: it is not the caller's, and the message
// must not reach the server.
bool outgoing_task(struct call *call, const struct link *link, struct outgoing_swap *swap) MUST_CHECK;
void outgoing_put(const struct call *call, struct outgoing_swap *swaps, size_t count, struct pieces *out);
// Passes a notification on, with one value swapped (or none). False: as above, and nothing was sent.
bool outgoing_notify(struct call *call, const struct link *link, struct span old, struct span with) MUST_CHECK;

// A request of the gate itself, whose answer is ignored.
void outgoing_unheard(struct link *link, enum method method, struct span params);

// ---- fan_out.c: a message of a server on its way to many sessions
#define FAN_OUT_TEXTS 3

struct fan_out {
    struct list node;  // in link->fan_outs
    struct link *link;
    // Tells the session, if it is meant for it; false: it is not.
    bool (*tell)(struct fan_out *fan_out, struct session *session);

    // what it says, for `tell`
    struct span params;  // of the server's message
    struct buf key;      // of what it is about: a subscription key or a task id
    int level;
    unsigned kinds;
    bool known;
    struct blob *texts[FAN_OUT_TEXTS];  // made by `tell` for the sessions of one scope

    // how far it has come
    struct list *use;      // in link->uses; NULL: it has not begun
    struct list *session;  // in that scope's sessions
    struct buf kept;       // the params, when they outlive the message
};

// Tells the sessions of the link: those of this turn's slice at once, the others from the loop. Takes over `key`.
void fan_out_start(const struct fan_out *news);
void fan_out_init(struct gate *gate);
void fan_out_session_ends(const struct session *session);  // before it leaves its scope

#endif
