// The gate's own objects: sessions, scopes, links and tenants.
//
//   session ── uses ──► scope ── has ──► link ── is ──► upstream + source
//
// A scope is a merged view with the links behind it. Sessions that see the same servers share one; a
// server with isolation `user` or `session` gives its users or sessions scopes of their own.
#ifndef GATE_SESSION_STATE_H
#define GATE_SESSION_STATE_H

#include "auth/caller/identity.h"
#include "auth/grant/store.h"
#include "auth/policy/policy.h"
#include "base/arena.h"
#include "base/list.h"
#include "base/map.h"
#include "base/pieces.h"
#include "catalog/view.h"
#include "config/chains.h"
#include "config/config.h"
#include "gate/session/limit.h"
#include "gate/session/memory.h"
#include "gate/session/stream.h"
#include "gate/session/throttle.h"
#include "loop/http_client.h"
#include "loop/offload.h"
#include "mcp/params.h"
#include "mcp/revision.h"
#include "store/audit/audit.h"
#include "store/catalogue.h"
#include "upstream/upstream.h"

#define SESSION_ID_BYTES 32
#define SESSION_ID_LEN 43  // SESSION_ID_BYTES in base64url
#define GATE_KEY_BYTES 32

// See shutdown.c.
enum gate_state {
    GATE_OPEN,
    GATE_CLOSING,      // new calls and sessions are refused; calls in flight may finish
    GATE_CLOSED_DOWN,  // calls and sessions have ended, and servers are being stopped
};

struct gate {
    enum gate_state state;             // shutdown_set_state()
    const struct call_runner *runner;  // the phases
    const struct link_events *events;  // handlers for events of servers
    struct loop *loop;
    struct http_client *http;
    struct offload *background;  // parses large messages
    const struct config *config;
    struct config_chains *chains;
    struct audit *audit;                 // NULL: none
    struct grant_store *grants;          // NULL: none
    struct catalogue *catalogue;         // NULL: none
    bool replaced;                       // by another process, which keeps the catalogue cache from then on
    struct assertion_keys *keys;         // sign identity assertions
    struct exchanged_tokens *exchanged;  // NULL: no server exchanges callers' tokens
    struct connect *connect;             // NULL: no server needs it
    struct throttle throttle;
    struct memory memory;
    struct list tenants;                // of tenant.c, in the order of the configuration: the first is `default`
    unsigned char key[GATE_KEY_BYTES];  // for cursors and task ids
    struct map sessions;                // id -> session
    struct map session_counts;          // of tally.c: identity -> number of sessions
    struct map process_counts;          // of tally.c: identity -> number of server processes
    size_t process_count;               // of all server processes
    struct map links;                   // "server\0key" -> link
    struct list retired;                // links that a reload took out of `links`, until their calls are over
    struct map scopes;                  // key -> scope
    struct map tasks;                   // "server\0id" -> owner
    struct list kept;                   // of kept.c: links with lists to save or to refresh
    struct map known;                   // of known.c: server and identity -> the server's declarations
    struct map refused;                 // of refused.c: address and reason -> count
    int64_t refused_since_ms;           // of refused.c: when the count of `refused_rows` began
    size_t refused_rows;
    struct arena_store arenas;  // of calls
    struct list calls;          // all calls, oldest first
    struct list quick;          // HTTP calls without a stream yet, oldest first
    struct list fan_outs;       // of fan_out.c: links with messages on their way to sessions, the next one first
    struct loop_task fan_out;
    struct list levels;     // of level.c: links whose log level may be raised
    uint64_t fan_out_turn;  // the turn of the loop that `fan_out_left` belongs to
    int fan_out_left;
    uint64_t policy_epoch;  // counts swaps of policies and rules that expired
    uint64_t next_request;
    struct loop_timer sweep, deadline;
    int64_t started_ms;
    unsigned sweeps;
    bool credentials_failed, certificates_failed;
    char configuration_since[32], configuration_failing_since[32];  // "": not failing
    int64_t stop_by_ms;
    unsigned links_closing;
    void (*on_done)(void *arg);
    void *done_arg;
};

// The state of one tenant. Nothing leads from one tenant to another. It is counted: a tenant that was removed from the configuration
// is no longer found, and lasts until its sessions, calls and servers have ended.
struct tenant {
    struct gate *gate;
    struct list node;  // in gate->tenants until it is removed from the configuration
    unsigned refs;
    char *name;
    const struct config *config;               // the last configuration that contains it
    const struct option_items *servers;        // struct server
    const struct option_items *profiles;       // struct profile
    struct policy *policy;                     // tenant_set_policy()
    struct policy_memo *memo;                  // caches decisions of `policy`
    struct limit *limit;                       // NULL: none
    struct budget *memory;                     // of its callers and servers
    char policy_since[32], failing_since[32];  // "": not failing
    uint64_t reload_failed;
    int64_t session_limit;
    size_t session_count;
    int64_t process_limit;
    size_t process_count;
    int64_t recheck_at;   // when a rule of the policy expires, in seconds since the epoch
    struct map runtimes;  // of server_runtime.c: name of a server -> struct server_runtime
};

// The lists of a link in the catalogue cache, see kept.c.
struct link_kept {
    struct list node;  // in gate->kept
    struct catalogue_find find;
    struct grant_request grants;  // of the user, when the link began
    struct grant_request check;   // whether the grant of restored lists still exists
    char *user;                   // the user that the entry belongs to; NULL: it is shared
    int64_t login;                // of the user's grant, for a server that is used with one
    int64_t renew_at_ms;          // when the restored lists are no longer fresh (loop_now)
    int64_t save_after_ms;        // no earlier
    bool unsaved;                 // the lists differ from the entry
    bool saved;                   // since the link began
    bool ended;                   // the link is being closed
    bool forgotten;               // while it was being looked up
};

// How a server is used, see idle.c.
struct link_usage {
    struct map callers;      // ids of open sessions that have called it
    int64_t interval_ms;     // between requests, on average; 0: not known
    int64_t asked_ms;        // when the last request came; 0: none has
    int64_t needed_ms;       // when it was last needed
    int64_t tasks_until_ms;  // until then it may have tasks
    bool unsaved;            // the interval differs from that of the entry
    bool resting;            // it is being ended for that: not a loss
};

// One upstream as the gate uses it.
struct link {
    struct gate *gate;
    const struct config *config;  // contains its server
    char *key;                    // in gate->links
    size_t key_len;
    struct access *access;                 // provides the Authorization header; NULL: none is sent
    struct assertion_keys *keys;           // sign `assertion`
    struct identity_assertion *assertion;  // identifies the caller to the server; NULL: nothing does
    struct upstream *upstream;
    struct source *source;
    struct link_kept kept;
    struct link_usage usage;
    unsigned refs;  // of scopes
    struct list retired_node;
    int64_t retired_until_ms;  // 0: not retired, so it is in gate->links
    struct list uses;          // struct scope_use: the scopes that use it
    struct list fan_outs;      // struct fan_out: messages on their way to its sessions, oldest first
    struct list fan_out_node, level_node;
    struct list calls;      // in flight at this server
    struct session *owner;  // with isolation `session`
    struct tenant *tenant;
    struct budget *memory;         // counts messages while they are read
    struct budget_hold declared;   // of the caller's capabilities, which a server of one session gets at each start
    struct identity *user;         // the user whose grant it uses; NULL: not the grant of a user
    struct identity *counted_for;  // the identity that its process counts for, or NULL
    bool counted;                  // its process is counted (process.c)
    struct map watched;            // resource URI -> struct watched
    struct map asks;               // raw id of the server -> struct ask: its open questions
    struct map elicited;           // elicitation id -> session id, for notifications/elicitation/complete
    struct map task_tokens;        // the gate's progress token -> struct task_token, for tasks whose call is over
    struct map caller_tasks;       // of caller_task.c: ids of tasks that the caller runs for this server
    int level;                     // last log level sent, -1: none
    struct identity *roots_of;     // of roots.c: the identity whose roots a shared server has, or NULL
    bool roots_asked;              // the server asked for roots
    struct list task_calls;        // of task_news.c: calls that asked for a task and are not answered, oldest first
    struct list early;             // struct early: notifications about tasks that have no owner yet
    size_t early_count, early_bytes;
};

// The session that gets the progress of a task after its tools/call was answered, and the token to use.
struct task_token {
    char session[SESSION_ID_LEN + 1];
    char token[];  // raw, of the caller
};

struct scope {
    struct gate *gate;
    const struct config *config;  // contains its names
    struct tenant *tenant;
    const struct profile *profile;  // NULL: it has all servers of the tenant
    char *key;
    bool shared;    // all callers of the tenant share it, and it is kept without sessions
    bool detached;  // a reload took it out of gate->scopes; calls that began with it keep it
    unsigned refs;  // of sessions and calls
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

enum session_state {
    SESSION_NEW,
    SESSION_LIVE,   // `initialize` was received
    SESSION_READY,  // notifications/initialized was received: servers may notify and ask its caller
    SESSION_ENDED,  // freed with its last call
};

// A cache of visibility_sees() for the servers of a session's scope.
struct session_visibility {
    unsigned char *known;  // of visibility.c, one for each link; or NULL
    uint64_t generation, epoch;
};

struct session {
    struct gate *gate;
    char id[SESSION_ID_LEN + 1];
    enum session_state state;  // session_set_state()
    bool pipe;                 // all messages go to `standalone`
    struct identity *identity;
    struct tenant *tenant;          // of the identity
    struct budget *memory;          // of the identity
    const struct profile *profile;  // of gate->config: the session was opened in it and is only known there; or NULL
    enum revision revision;
    struct session_abilities can;
    struct span capabilities;     // of its caller, a raw JSON object
    struct budget_hold declared;  // of `capabilities`
    struct scope *scope;
    struct list scope_node;
    struct stream *standalone;
    struct list streams;  // struct session_stream: streams of calls, for resumption
    unsigned next_stream;
    struct list calls;
    size_t call_count;
    struct list unread;  // calls in order of arrival, from the first whose message has not been read
    struct map asks;     // the gate's id -> struct ask
    uint64_t next_ask;
    struct map subscribed;  // key of subscription.c, of link and URI -> struct subscription
    int level;              // log level; -1: not set
    unsigned listed;        // kinds that the caller has listed: only these need a list_changed
    struct session_visibility visibility;
    bool draining;  // in any state: its input has ended, and the session ends with its last call
    int64_t used_ms;
};

struct session_stream {
    struct list node;
    struct stream *stream;
    int64_t ended_ms;  // 0: the call still runs
};

struct subscription {
    struct link *link;
    char *uri;  // the server's own URI, which contains no NUL (route_resource)
};

// Handlers for events of servers. `arg` of the upstream's and the source's callbacks is the link.
struct link_events {
    struct upstream_listener upstream;
    void (*on_lists)(void *arg, struct source *source, unsigned kinds);
    void (*on_close)(struct link *link);
};

// ---- session.c
// False: a limit of sessions is reached, for this identity, its tenant or the gateway.
bool session_may_open(const struct gate *gate, const struct tenant *tenant, const struct identity *identity,
                      struct err *err) MUST_CHECK;
struct session *session_new(struct gate *gate, struct tenant *tenant, const struct identity *identity, bool pipe);
struct session *session_find(struct gate *gate, struct span id);
void session_set_state(struct session *session, enum session_state state);
void session_settle(struct session *session);  // frees a session that ended, when its last call is over
struct stream *session_stream_find(struct session *session, unsigned index);
void session_sweep_streams(struct session *session);  // drops streams that can no longer be resumed
// Sends the caller a message that belongs to no call. Takes over the reference.
void session_tell(struct session *session, struct blob *message);

// ---- shutdown.c
void shutdown_set_state(struct gate *gate, enum gate_state state);
void shutdown_settle(struct gate *gate);  // completes the shutdown if no call and no server is left

// ---- tenant.c
struct tenant *tenant_new(struct gate *gate, const char *name);  // at the end of the list, with limits not set
struct tenant *tenant_ref(struct tenant *tenant);
void tenant_unref(struct tenant *tenant);
struct tenant *tenant_find(const struct gate *gate, const char *name);  // NULL: no such tenant
#define tenant_each(at, gate) list_each(at, &(gate)->tenants)
static inline struct tenant *tenant_at(struct list *node) { return list_entry(node, struct tenant, node); }
void tenant_configure(struct tenant *tenant, size_t number);           // from gate->config, by its number there
void tenant_remove(struct tenant *tenant);                             // it was removed from the configuration
void tenant_set_policy(struct tenant *tenant, struct policy *policy);  // replaces the policy; NULL: removes it

// ---- tally.c: counts by identity
void tally_put_key(const struct identity *identity, struct buf *out);  // a key that is unique to it
size_t tally_count(const struct map *tally, const struct identity *identity);
void tally_add(struct map *tally, const struct identity *identity);
void tally_drop(struct map *tally, const struct identity *identity);

// ---- cursor.c
void cursor_put(const struct scope *scope, enum catalog_kind kind, uint64_t generation, size_t offset, struct buf *out);
bool cursor_read(const struct scope *scope, enum catalog_kind kind, uint64_t generation, struct span text,
                 size_t *offset);

#endif
