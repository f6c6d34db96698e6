// Servers as the gate uses them: links and scopes, their visibility to sessions, and the shape of their messages.
#ifndef GATE_SERVER_SERVER_H
#define GATE_SERVER_SERVER_H

#include "gate/session/call.h"

// ---- link.c
void link_close_all(struct gate *gate, int64_t within_ms);
void link_recheck_all(struct gate *gate);  // grants may have been deleted by another process
// After a reload: takes links to servers that were removed or changed out of gate->links. They last until their calls are over, at
// most for timeouts.shutdown.
void link_retire_stale(struct gate *gate);
bool link_is_of(const struct link *link, const struct tenant *tenant, const char *server);
// For an operator: the links of one server are retired, whether or not anything has changed, and their lists are fetched anew;
// and those that replace them are started, unless they are of one user or session.
void link_retire_server(const struct tenant *tenant, const char *server);
void link_start_server(struct tenant *tenant, const char *server);
void link_sweep_retired(struct gate *gate);
void link_start_eager(struct gate *gate);  // servers that are to run all the time

// ---- kept.c: the lists of servers in the catalogue cache
void kept_note(struct link *link, unsigned kinds);  // its lists were fetched, or restored
void kept_sweep(struct gate *gate);
void kept_hand_over(struct gate *gate);  // another process serves from now on: lists are saved for the last time
// Deletes the lists of a user whose grants or credential were revoked or replaced: of one server, or of all (NULL).
void kept_forget_user(struct gate *gate, const struct identity *who, const char *server);
// After a reload: deletes the lists of servers that were removed or changed.
void kept_forget_changed(const struct gate *gate, const struct config *old);

// ---- idle.c
void idle_note_call(struct call *call);                    // it goes to its server
void idle_note_task(struct link *link, struct span task);  // its server made one, a JSON object
void idle_session_ends(struct link *link, const struct session *session);
void idle_sweep(struct gate *gate);  // ends servers that are not used

// ---- scope.c
struct scope *scope_get(struct gate *gate, struct session *session);
void scope_release(struct scope *scope);
// For the servers of its scope that are visible to the session:
void scope_warm(const struct session *session,
                bool own_too);                         // starts them; `own_too`: also those of this session alone
void scope_look_again(const struct session *session);  // retries those that needed a login
struct link *scope_link(const struct scope *scope, const struct source *source);
void scope_release_all(struct gate *gate);
// After a reload: detaches scopes that differ from the new configuration. session_life_move() has to follow.
void scope_detach_stale(struct gate *gate);

// ---- process.c
bool process_may_start(struct link *link, struct err *err) MUST_CHECK;  // counts the process, unless there are too many
void process_ended(struct link *link);                                  // no effect if it was not counted

// ---- visibility.c: which servers are visible to a session
bool visibility_allowed(const struct session *session, const struct link *link);  // the server may learn of the session
bool visibility_sees(struct session *session, const struct link *link);           // its messages may reach the session

// ---- known.c: instructions and capabilities of servers, also of servers of one user or session that are not up yet
void known_note(struct link *link);  // its lists were fetched, or it is ready again
struct span known_instructions(const struct link *link, const struct session *session);  // decoded; empty if none
struct span known_declared(const struct link *link, const struct session *session);      // capabilities, raw; or empty
void known_release_all(struct gate *gate);

// ---- notice.c
// A notification of a server as this session should see it. `id` replaces its `requestId` or `progressToken`.
struct blob *notice_text(const struct session *session, const struct link *link, enum method method, struct span params,
                         struct span id);

// ---- task.c
struct task_owner {
    struct identity *identity;
    char session[SESSION_ID_LEN + 1];  // the owner, for anonymous callers
};
// The input of the seal of task ids, for one server and owner.
struct task_seal {
    struct span server, link_key;
    const unsigned char *secret;  // GATE_KEY_BYTES
    const struct identity *owner;
};
struct link *task_unwrap(struct scope *scope, const struct identity *owner, struct span wrapped, struct buf *id);
void task_note_made(struct call *call, struct span raw_id);  // the server created a task for this call
bool task_owned(const struct link *link, const struct session *session, struct span id);
bool task_known(const struct link *link, struct span id);                         // it has an owner
bool task_related(const struct link *link, struct span params, struct buf *out);  // the id of their task, if any
void task_release_all(struct gate *gate);

// ---- shape.c: names and URIs between a server and a caller
// Everything that the translation depends on. It is valid while the objects that it was made of are; shaping.c makes a deep copy.
struct shape {
    enum method method;  // of the notification or question, or of the request that it answers
    struct span prefix;  // of URIs; empty: they stay as they are
    bool tasks;          // the server has tasks
    struct task_seal seal;
    struct span id;  // raw, for the `requestId` of a cancellation or the `progressToken` of progress
};
struct shape shape_of(const struct scope *scope, const struct link *link, const struct identity *identity,
                      enum method method);
// Translate a result, params or error object of a server for this caller. True: `out` has it. False: it is unchanged.
bool shape_from_server(const struct shape *shape, struct span json, struct buf *out);
bool shape_error_from_server(const struct shape *shape, struct span json, struct buf *out);
// Puts `retryAfterMs` into the data of an error. False: the error stays unchanged, because its data already has that member or
// is not an object.
bool shape_put_retry(struct span error, int64_t retry_ms, struct buf *out);
// The same for a large object, which is shared and not copied: `out` gets it, changed or not. It may run on a worker thread.
bool shape_changes(const struct shape *shape, bool error);  // false: no rule applies, so the text need not be searched
void shape_shared(const struct shape *shape, bool error, struct blob *owner, struct span json, struct pieces *out);
// Translates the answer of a caller for the server. True: `out` has it. False: it is unchanged.
bool shape_answer(const struct session *session, const struct link *link, struct span json, struct buf *out);

// ---- outgoing.c: the params of a caller's message, on their way to a server
// A value in the params, and the value that the server gets in its place.
struct outgoing_swap {
    struct span old;   // at is NULL: nothing is replaced
    struct span with;  // the new value: raw JSON or,
    bool text;         // if set, the characters of a string
};

// Finds the id of the task that the message names as related, if any. False: the task is not the caller's, and the message must
// not reach the server.
bool outgoing_task(struct call *call, const struct link *link, struct outgoing_swap *swap) MUST_CHECK;
void outgoing_put(const struct call *call, struct outgoing_swap *swaps, size_t count, struct pieces *out);
// Passes on a notification, with at most one value replaced. False: as above, and nothing was sent.
bool outgoing_notify(struct call *call, const struct link *link, struct span old, struct span with) MUST_CHECK;

// Sends a request of the gate itself, whose answer is ignored.
void outgoing_unheard(struct link *link, enum method method, struct span params);

// ---- fan_out.c: a message of a server on its way to many sessions
#define FAN_OUT_TEXTS 3

struct fan_out {
    struct list node;  // in link->fan_outs
    struct link *link;
    // Delivers the message to the session. False: it is not for this session.
    bool (*tell)(struct fan_out *fan_out, struct session *session);

    // the message, for `tell`
    struct span params;  // of the server's message
    struct buf key;      // its subject: a subscription key or a task id
    int level;
    unsigned kinds;
    bool known;
    struct blob *texts[FAN_OUT_TEXTS];  // made by `tell` for the sessions of one scope

    // the position
    struct list *use;      // in link->uses; NULL: not started
    struct list *session;  // the next one in that scope's sessions
    struct buf kept;       // a copy of the params, if they outlive the message
};

// Delivers a message to the sessions of the link: to those in this turn's slice at once, to the others from the loop. Takes over
// `key`.
void fan_out_start(const struct fan_out *news);
void fan_out_init(struct gate *gate);
void fan_out_session_ends(const struct session *session);  // before it leaves its scope

#endif
