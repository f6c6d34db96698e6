// The gate's own objects: what a session, a scope, a link and a question to a caller are made of.
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
#include "upstream/upstream.h"

#define SESSION_ID_BYTES 32
#define SESSION_ID_LEN 43  // of so many bytes in base64url
#define GATE_KEY_BYTES 32

// See shutdown.c.
enum gate_state {
    GATE_OPEN,
    GATE_CLOSING,      // it refuses new calls and sessions; calls in flight may finish
    GATE_CLOSED_DOWN,  // calls and sessions were ended, and servers are being stopped
};

struct gate {
    enum gate_state state;             // shutdown_set_state()
    const struct call_runner *runner;  // the phases
    const struct link_events *events;  // what becomes of what servers say
    struct loop *loop;
    struct http_client *http;
    struct offload *background;  // reads large messages
    const struct config *config;
    struct config_chains *chains;
    struct audit *audit;                 // NULL: none
    struct grant_store *tokens;          // NULL: none
    struct assertion_keys *keys;         // what tells servers who calls is signed with
    struct exchanged_tokens *exchanged;  // for callers, by exchanging their tokens; NULL: no server does
    struct connect *connect;             // NULL: no server needs it
    struct throttle throttle;
    struct memory memory;
    struct list tenants;                // of tenant.c, in the order of the configuration: the first is `default`
    unsigned char key[GATE_KEY_BYTES];  // for cursors and task ids
    struct map sessions;                // id -> session
    struct map session_counts;          // of tally.c, how many of them are theirs
    struct map process_counts;          // and how many server processes
    size_t process_count;               // in all
    struct map links;                   // "server\0key" -> link
    struct list retired;                // links that a reload took out of there, until the calls at them are over
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
    int64_t started_ms;
    unsigned sweeps;
    bool credentials_failed, certificates_failed;
    char configuration_since[32], configuration_failing_since[32];  // "": it does not fail
    int64_t stop_by_ms;
    unsigned links_closing;
    void (*on_done)(void *arg);
    void *done_arg;
};

// What one tenant has of its own. Nothing leads from one to another. It is counted: a tenant that the configuration no longer
// has is not found, and lasts until its sessions, calls and servers have ended.
struct tenant {
    struct gate *gate;
    struct list node;  // in gate->tenants while the configuration has it
    unsigned refs;
    char *name;
    const struct config *config;               // the last one that has it
    const struct option_items *servers;        // struct server
    const struct option_items *profiles;       // struct profile
    struct policy *policy;                     // tenant_set_policy()
    struct policy_memo *memo;                  // through which it is asked
    struct limit *limit;                       // NULL: none
    struct budget *memory;                     // of its callers and servers
    char policy_since[32], failing_since[32];  // "": it does not fail
    uint64_t reload_failed;
    int64_t session_limit;
    size_t session_count;
    int64_t process_limit;
    size_t process_count;
    int64_t recheck_at;   // when a rule of the policy expires, in seconds since the epoch
    struct map runtimes;  // of server_runtime.c: name of a server -> struct server_runtime
};

// One upstream as the gate uses it.
struct link {
    struct gate *gate;
    const struct config *config;  // that its server is of
    char *key;                    // in gate->links
    size_t key_len;
    struct access *access;                 // what is presented to the server; NULL: nothing
    struct assertion_keys *keys;           // that the assertion is signed with
    struct identity_assertion *assertion;  // tells it who calls; NULL: nothing does
    struct upstream *upstream;
    struct source *source;
    unsigned refs;  // scopes
    struct list retired_node;
    int64_t retired_until_ms;  // 0: it is in gate->links
    struct list uses;          // struct scope_use: those scopes
    struct list fan_outs;      // struct fan_out: what is on its way to its sessions, oldest first
    struct list fan_out_node, level_node;
    struct list calls;      // in flight here
    struct session *owner;  // with isolation `session`
    struct tenant *tenant;
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
    const struct config *config;  // that its names are of
    struct tenant *tenant;
    const struct profile *profile;  // NULL: it has all servers of the tenant
    char *key;
    bool everybody;  // of its tenant: it stays when nobody uses it
    bool detached;   // a reload took it out of gate->scopes: calls that began with it keep it
    unsigned refs;   // sessions and calls
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
    SESSION_LIVE,   // `initialize` has come
    SESSION_READY,  // notifications/initialized has come: servers may notify and ask its caller
    SESSION_ENDED,  // it is freed with its last call
};

// Which servers of its scope a session may hear, as far as it was asked.
struct session_visibility {
    unsigned char *known;  // of visibility.c, one for each link; NULL: none
    uint64_t generation, epoch;
};

struct session {
    struct gate *gate;
    char id[SESSION_ID_LEN + 1];
    enum session_state state;  // session_set_state()
    bool pipe;                 // everything goes to `standalone`
    struct identity *identity;
    struct tenant *tenant;          // of the identity
    struct budget *memory;          // the same
    const struct profile *profile;  // of gate->config, the one it was opened in and is known in alone; NULL: none
    enum revision revision;
    struct session_abilities can;
    struct span capabilities;     // that its caller declared: a raw JSON object
    struct budget_hold declared;  // for those
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
    struct session_visibility visibility;
    bool draining;  // in any state: its caller sends no more, and it ends with its last call
    int64_t used_ms;
};

struct session_stream {
    struct list node;
    struct stream *stream;
    int64_t ended_ms;  // 0: the call still runs
};

struct subscription {
    struct link *link;
    char *uri;  // the server's own, which has no NUL in it (route_resource)
};

// What becomes of what servers do on their own. A link's owner in `arg` is the link.
struct link_events {
    struct upstream_listener upstream;
    void (*on_lists)(void *arg, struct source *source, unsigned kinds);
    void (*on_close)(struct link *link);
};

// ---- session.c
// False: there are as many already as there may be, of this identity, of its tenant or of all.
bool session_may_open(const struct gate *gate, const struct tenant *tenant, const struct identity *identity,
                      struct err *err) MUST_CHECK;
struct session *session_new(struct gate *gate, struct tenant *tenant, const struct identity *identity, bool pipe);
struct session *session_find(struct gate *gate, struct span id);
void session_set_state(struct session *session, enum session_state state);
void session_settle(struct session *session);  // frees one that ended, when its last call is over
struct stream *session_stream_find(struct session *session, unsigned index);
void session_sweep_streams(struct session *session);  // drops those that nobody may resume any more
// A message for the caller that belongs to no call: takes over the reference.
void session_tell(struct session *session, struct blob *message);

// ---- shutdown.c
void shutdown_set_state(struct gate *gate, enum gate_state state);
void shutdown_settle(struct gate *gate);  // it stops, and perhaps the last call or server it waited for is over

// ---- tenant.c
struct tenant *tenant_new(struct gate *gate, const char *name);  // at the end of the list; its limits are not set
struct tenant *tenant_ref(struct tenant *tenant);
void tenant_unref(struct tenant *tenant);
struct tenant *tenant_find(const struct gate *gate, const char *name);  // NULL: no such tenant
#define tenant_each(at, gate) list_each(at, &(gate)->tenants)
static inline struct tenant *tenant_at(struct list *node) { return list_entry(node, struct tenant, node); }
void tenant_configure(struct tenant *tenant, size_t number);           // as gate->config has it, under this number
void tenant_remove(struct tenant *tenant);                             // the configuration no longer has it
void tenant_set_policy(struct tenant *tenant, struct policy *policy);  // replaces the policy; NULL: no policy any more

// ---- tally.c: counts by identity
void tally_put_key(const struct identity *identity, struct buf *out);  // what tells it from all others
size_t tally_count(const struct map *tally, const struct identity *identity);
void tally_add(struct map *tally, const struct identity *identity);
void tally_drop(struct map *tally, const struct identity *identity);

// ---- cursor.c
void cursor_put(const struct scope *scope, enum catalog_kind kind, uint64_t generation, size_t offset, struct buf *out);
bool cursor_read(const struct scope *scope, enum catalog_kind kind, uint64_t generation, struct span text,
                 size_t *offset);

#endif
