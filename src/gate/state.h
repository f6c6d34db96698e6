// The gate's own objects: what a session, a scope, a link and a question to a caller are made of.
//
//   session ── uses ──► scope ── has ──► link ── is ──► upstream + source
//
// A scope is a merged view with the links behind it. Sessions that see the same servers share one; a
// server with isolation `user` or `session` gives its users or sessions scopes of their own.
#ifndef GATE_STATE_H
#define GATE_STATE_H

#include "auth/identity.h"
#include "auth/policy.h"
#include "base/list.h"
#include "base/map.h"
#include "base/pieces.h"
#include "catalog/view.h"
#include "gate/gate.h"
#include "gate/stream.h"
#include "limit.h"
#include "mcp/params.h"
#include "mcp/revision.h"
#include "memory.h"
#include "throttle.h"
#include "upstream/upstream.h"

#define SESSION_ID_LEN 43
#define GATE_KEY_BYTES 32

struct gate {
    struct loop *loop;
    struct http_client *http;
    struct offload *background;  // reads large messages
    const struct config *config;
    struct provider_chain *const *chains;  // the first is the one at the top; see gate_chain()
    struct audit *audit;                   // NULL: none
    struct token_store *tokens;            // NULL: none
    struct assertion_keys *keys;           // what tells servers who calls is signed with
    struct exchanged *exchanged;           // for callers, by exchanging their tokens; NULL: no server does
    struct hosted *hosted;                 // NULL: no server needs it
    struct throttle throttle;
    struct memory memory;
    struct tenant *tenants;  // the first is `default`
    size_t tenant_count;
    unsigned char key[GATE_KEY_BYTES];  // for cursors and task ids
    struct map sessions;                // id -> session
    struct map session_counts;          // of tally.c, how many of them are theirs
    struct map process_counts;          // and how many server processes
    size_t process_count;               // in all
    struct map links;                   // "server\0key" -> link
    struct map scopes;                  // key -> scope
    struct map tasks;                   // "server\0id" -> owner
    struct map known;                   // of known.c: server and identity -> what it declared
    struct map refused;                 // of refused.c: address and reason -> how often
    int64_t refused_since_ms;           // of refused.c: since when `refused_rows` counts
    size_t refused_rows;
    struct arena_store arenas;  // of calls
    struct list calls;          // all calls, oldest first
    struct list quick;          // HTTP calls without a stream yet, oldest first
    struct list fan_outs;       // of fan_out.c: links with messages on their way to sessions, the next one first
    struct loop_task fan_out;
    struct list levels;     // of level.c: links whose sessions may want less of the log
    uint64_t fan_out_turn;  // of the loop, in which `fan_out_left` is left of the slice
    int fan_out_left;
    uint64_t policy_epoch;  // counts swaps of policies and rules that expired
    uint64_t next_request;
    struct loop_timer sweep, deadline;
    unsigned sweeps;
    bool closing, closed_down, credentials_failed, certificates_failed;
    int64_t stop_by_ms;
    unsigned links_closing;
    void (*on_done)(void *arg);
    void *done_arg;
};

// What one tenant has of its own. Nothing leads from one to another.
struct tenant {
    const char *name;
    const struct option_items *servers;   // struct server
    const struct option_items *profiles;  // struct profile
    struct policy *policy;
    struct limit *limit;                       // NULL: none
    struct budget *memory;                     // of its callers and servers
    char policy_since[32], failing_since[32];  // "": it does not fail
    uint64_t reload_failed;
    int64_t session_limit;
    size_t session_count;
    int64_t process_limit;
    size_t process_count;
    int64_t recheck_at;  // when a rule of the policy expires, in seconds since the epoch
};

// One upstream as the gate uses it.
struct link {
    struct gate *gate;
    char *key;  // in gate->links
    size_t key_len;
    struct access *access;        // what is presented to the server; NULL: nothing
    struct assertion *assertion;  // tells it who calls; NULL: nothing does
    struct upstream *upstream;
    struct source *source;
    unsigned refs;         // scopes
    struct list uses;      // struct scope_use: those scopes
    struct list fan_outs;  // struct fan_out: what is on its way to its sessions, oldest first
    struct list fan_out_node, level_node;
    struct list calls;      // in flight here
    struct session *owner;  // with isolation `session`
    const char *tenant;
    struct budget *memory;         // that messages count for while they are read
    struct budget_hold declared;   // for the caller's capabilities, which a server of its own gets at each start
    struct identity *user;         // whose grant it uses; NULL: nobody's in particular
    struct identity *counted_for;  // the identity its process counts for; NULL: none
    bool counted;                  // its process is, in process.c
    struct map watched;            // resource URI -> struct watched
    struct map asks;               // raw id of the server -> struct ask: its open questions
    struct map elicited;           // elicitation id -> session id, for notifications/elicitation/complete
    struct map task_tokens;        // our progress token -> struct task_token, for tasks whose call is over
    struct map caller_tasks;       // of caller_task.c: ids of tasks that the caller runs for this server
    int level;                     // last log level sent, -1: none
    struct identity *roots_of;     // of roots.c: whose roots it was given, if several may use it; NULL: it has none
    bool roots_asked;              // it asked for some
    struct list task_calls;        // of task_news.c: calls that asked for a task and are not answered, oldest first
    struct list early;             // struct early: news of tasks that have no owner yet
    size_t early_count, early_bytes;
};

// Who wants the progress of a task after its tools/call was answered.
struct task_token {
    char session[SESSION_ID_LEN + 1];
    char token[];  // raw, of the caller
};

struct scope {
    struct gate *gate;
    char *key;
    bool everybody;  // of its tenant: it stays when nobody uses it
    unsigned refs;
    struct view *view;
    struct link **links;     // in the view's order
    struct scope_use *uses;  // of those links, in the same order
    size_t link_count;
    struct list sessions;
    struct list waiters;  // calls that wait for the lists
};

struct session_abilities {
    bool roots, roots_changed, sampling, sampling_tools, elicit_form, elicit_url, tasks, tasks_list, tasks_cancel;
};

// A scope in the list of one of its links.
struct scope_use {
    struct list node;
    struct scope *scope;
};

enum session_state { SESSION_NEW, SESSION_LIVE, SESSION_ENDED };

// Which servers of its scope a session may hear, as far as it was asked.
struct session_reach {
    unsigned char *known;  // of reach.c, one for each link; NULL: none
    uint64_t generation, epoch;
};

struct session {
    struct gate *gate;
    char id[SESSION_ID_LEN + 1];
    enum session_state state;
    bool ready;  // notifications/initialized has come
    bool pipe;   // everything goes to `standalone`
    struct identity *identity;
    struct budget *memory;          // of the identity
    const struct profile *profile;  // the one it was opened in, which is the only one it is known in; NULL: none
    enum revision revision;
    struct session_abilities can;
    struct scope *scope;
    struct list scope_node;
    struct stream *standalone;
    struct list streams;  // struct session_stream: streams of calls, for resumption
    unsigned next_stream;
    struct list calls;
    size_t call_count;
    struct list unread;  // calls in order, from the first whose message has not been read on
    struct map asks;     // our id -> struct ask
    uint64_t next_ask;
    struct map subscribed;  // key of subscription.c, of link and URI -> struct subscription
    int level;              // log level, -1: not set
    unsigned listed;        // kinds it has listed: only those are worth a list_changed
    struct session_reach reach;
    bool draining;  // ends with its last call
    int64_t used_ms;
};

struct session_stream {
    struct list node;
    struct stream *stream;
    int64_t ended_ms;  // 0: the call still runs
};

// ---- gate.c
void gate_name_arrival(struct arrival *arrival, const struct identity *who);  // it is known whose it is
void gate_settle(struct gate *gate);  // it stops, and perhaps the last call or server it waited for is over
struct tenant *gate_tenant(const struct gate *gate, const char *name);       // NULL: no such tenant
bool gate_stands(const struct gate *gate, const struct identity *identity);  // is it still who it was proven to be?

// ---- session.c
// False: there are as many already as there may be, of this identity, of its tenant or of all.
bool session_room(const struct gate *gate, const struct identity *identity, struct err *err) MUST_CHECK;
struct session *session_new(struct gate *gate, const struct identity *identity, bool pipe);
struct session *session_find(struct gate *gate, struct span id);
void session_begin(struct session *session, enum revision revision, struct span capabilities);
void session_end(struct session *session);
void session_settle(struct session *session);  // frees one that ended, when its last call is over
struct stream *session_stream_new(struct session *session);
struct stream *session_stream_find(struct session *session, unsigned index);
void session_stream_done(struct session *session, struct stream *stream);
void session_sweep(struct session *session);
// A message for the caller that belongs to no call: takes over the reference.
void session_tell(struct session *session, struct blob *message);

// ---- tally.c: counts by identity
void tally_put_key(const struct identity *identity, struct buf *out);  // what tells it from all others
size_t tally_count(const struct map *tally, const struct identity *identity);
void tally_add(struct map *tally, const struct identity *identity);
void tally_drop(struct map *tally, const struct identity *identity);

// ---- process.c
bool process_may_start(struct link *link, struct err *err) MUST_CHECK;  // counts it, unless there are too many
void process_ended(struct link *link);                                  // harmless if it was not counted

// ---- link.c
extern const struct upstream_listener link_listener;
// `capabilities`: what its caller declared, for servers of its own.
struct scope *scope_get(struct gate *gate, struct session *session, struct span capabilities);
void scope_release(struct scope *scope);
// Of its scope, as far as the session has to do with them:
void scope_warm(const struct session *session, bool own_too);  // starts servers; those of one session only when needed
void scope_look_again(const struct session *session);          // those that wanted a login: perhaps there was one
struct link *scope_link(const struct scope *scope, const struct source *source);
void scope_release_all(struct gate *gate);
void link_close_all(struct gate *gate, int64_t within_ms);
void link_recheck_all(struct gate *gate);  // grants may have been deleted by another process

// ---- fan_out.c
void fan_out_init(struct gate *gate);
void fan_out_session_ends(const struct session *session);                     // before it leaves its scope
void fan_out_use_ends(const struct link *link, const struct scope_use *use);  // before the link forgets the scope
void fan_out_drop_all(struct link *link);

// ---- relay.c: what servers say on their own
void relay_notification(struct link *link, const struct message *message, struct upstream_request *origin);
// Its notification as this session should see it, with what stands for its `requestId` or `progressToken`.
struct blob *relay_text(const struct session *session, const struct link *link, enum method method, struct span params,
                        struct span id);
void relay_list_changed(struct session *session, unsigned kinds);  // to one session
void relay_lists_changed(struct link *link, unsigned kinds);       // to those that see the server

// ---- reach.c: which servers have to do with a session
bool reach_allowed(const struct session *session, const struct link *link);  // the server may learn of the session
bool reach_sees(struct session *session, const struct link *link);           // what the server says may reach it
void reach_renew(struct session *session, const struct identity *identity);  // its newest proof; roles may be others
void reach_recheck_tenant(struct gate *gate, struct tenant *tenant);         // its policy is another now
void reach_sweep(struct gate *gate);                                         // rules may have expired

// ---- known.c: what servers declared, also those of one user or session that are not up yet
void known_note(struct link *link);  // its lists are there, or it is ready anew
struct span known_instructions(const struct link *link, const struct session *session);  // decoded; empty if none
struct span known_declared(const struct link *link, const struct session *session);      // capabilities, raw; or empty
void known_release_all(struct gate *gate);

// ---- ask.c: questions of servers to callers
void ask_start(struct link *link, const struct message *message, struct upstream_request *origin);
void ask_on_answer(struct session *session, const struct message *message, struct blob *body);
struct call;
void ask_note_error(struct link *link, const struct session *session, struct span error);  // to a call of the session
// A message that is not valid, and has lost its id if it is meant as an answer. `session` may be NULL: then no question
// is open.
void ask_on_invalid(struct session *session, struct message *message);
void ask_on_progress(struct call *call, struct span token);
void ask_on_cancelled(struct link *link, struct span params);
void ask_drop_session(struct session *session);
void ask_drop_link(struct link *link);

// ---- roots.c: whose roots a server that several sessions share may have
bool roots_may_pass(const struct link *link, const struct session *session);
struct session *roots_only_session(const struct link *link);  // the one that may be asked without a call; NULL: none
void roots_given(struct link *link, const struct session *session);
void roots_forget(struct link *link);               // it is down
void roots_recheck(const struct session *session);  // it may use servers that have roots of another identity
void roots_session_ready(const struct session *session);
void roots_changed(const struct session *session, struct span params);  // its caller says so

// ---- caller_task.c: tasks that callers run for servers
bool caller_task_asks(enum method method);  // about such a task
// Why the server may not ask that, and the code to say so with; NULL: it may.
const char *caller_task_problem(const struct link *link, const struct session *session, const struct message *message,
                                int *code);
void caller_task_put_params(enum method method, struct span params, struct buf *out);
void caller_task_note(struct link *link, struct span result);  // of the caller, who may have made a task of a question
void caller_task_put_list(const struct link *link, struct span result, struct buf *out);  // of tasks/list
void caller_task_on_status(struct session *session, struct span params);

// ---- dispatch.c
enum policy_kind dispatch_policy_kind(enum catalog_kind kind);                     // what the policy calls it
void dispatch_unheard(struct link *link, enum method method, struct span params);  // whose answer nobody needs

// ---- subscription.c
void subscription_drop_session(struct session *session);
void subscription_renew(struct link *link);
void subscription_recheck(struct session *session);  // ends what the policy does not allow any more
void subscription_fan_out(struct link *link, const struct message *message);
void subscription_release_link(struct link *link);

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
struct task_seal task_seal(const struct link *link, const struct identity *owner);
void task_wrap(const struct task_seal *seal, struct span id, struct buf *out);
struct link *task_unwrap(struct scope *scope, const struct identity *owner, struct span wrapped, struct buf *id);
void task_remember(struct link *link, const struct session *session, struct span id);
bool task_owned(const struct link *link, const struct session *session, struct span id);
bool task_known(const struct link *link, struct span id);                         // it has an owner
bool task_related(const struct link *link, struct span params, struct buf *out);  // id of the task they belong to
void task_release_all(struct gate *gate);

// ---- task_news.c: news of tasks whose owner is not known yet
struct fan_out;
void task_news_expect(struct call *call);        // asks its server for a task
void task_news_over(struct call *call);          // was answered to its caller, or will not be
void task_news_put(const struct fan_out *news);  // about the task whose id is its key; tells it now or later
void task_news_drop(struct link *link);

// ---- cursor.c
void cursor_put(const struct scope *scope, enum catalog_kind kind, uint64_t generation, size_t offset, struct buf *out);
bool cursor_read(const struct scope *scope, enum catalog_kind kind, uint64_t generation, struct span text,
                 size_t *offset);

// ---- narrow.c
// A listed tool, with the values its caller may pass: policy_narrowing() gives those.
void narrow_tool(struct span tool, const json_t *narrowing, struct buf *out);

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

#endif
