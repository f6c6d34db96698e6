// One call: a message or session operation on its way through the phases.
#ifndef GATE_CALL_H
#define GATE_CALL_H

#include "base/arena.h"
#include "base/secret.h"
#include "gate/session/arrival.h"
#include "gate/session/state.h"

struct login_offer;
struct reading;
struct arguments;
struct shaping;

// What a phase returns to the runner. Zero is a failure.
enum phase_result {
    PHASE_FAIL,  // the reason is in call->err
    PHASE_NEXT,
    PHASE_WAIT,   // call_resume() will run the same phase again
    PHASE_REPLY,  // skip to shaping the answer
};

typedef enum phase_result phase_fn(struct call *call);

// The interface of the phases for the files below them; phase.c gives it to the gate.
struct call_runner {
    void (*run)(struct call *call);  // through the phases, from the current one on
    void (*end)(struct call *call, const struct err *why, bool silent);
    bool (*may_send)(struct upstream_request *request,
                     struct err *err);  // still allowed? Only requests of calls have it
};

// The states of a call. They only advance, and any but the last may be skipped.
enum call_state {
    CALL_OPEN,
    CALL_DISPATCHED,  // its requests to servers were sent: `dispatch` runs again when the answers have arrived
    CALL_OFFERED,     // its caller was offered a connect link, which happens once
    CALL_ENDING,      // it is being ended early
    CALL_RECORDED,    // it is in the log and the audit log; only its answer is left
};

enum batch_state { BATCH_NONE, BATCH_WHOLE, BATCH_SPLIT };

#define SESSION_RETRY_MS 1000
#define SHARED_MIN ((size_t)64 << 10)  // bytes of a body to a server: below it, a copy is cheaper than a reference

struct call {
    struct gate *gate;
    struct list node, quick_node, session_node, unread_node, link_node, wait_node;
    struct arena arena;
    char request_id[17];  // the same in every log line of the call
    int64_t started_us;

    // the arrival
    enum arrival_op op;
    struct arrival *arrival;  // NULL once answered, streamed or gone
    struct span session_id, version, last_event_id, profile_name;
    struct credentials credentials;
    struct config_chains *chains;  // in force when the call began
    struct secret caller_token;    // the caller's JWT, if a server exchanges such tokens
    bool pipe;
    struct blob *body;
    struct budget_hold held;  // for the body and the call itself
    struct reading *reading;  // of a large message or a batch, or NULL
    bool in_turn;             // all earlier messages of its session have been read
    struct message message;
    enum method method;
    struct params params;
    const struct arguments *found;  // the arguments of a large message, or NULL

    // a batch: the parent waits for its parts
    struct call *parent;
    struct pieces batch;  // the answers so far, from "[" on
    size_t parts_left;
    enum batch_state batch_state;

    // results of the phases
    size_t phase;  // enum phase; call_set_phase()
    enum call_state state;
    struct identity *identity;
    struct provider_wait auth_wait;
    struct session *session;
    struct scope *scope;
    struct link *link;
    struct span target;       // the server's own name or URI
    struct span arguments;    // raw, once the policy was asked; at is NULL without arguments
    const char *unconnected;  // names of the servers that may own the target, `link` first; NULL: the owner is known
    struct tenant *tenant;    // of the identity
    struct policy *policy;    // the policy that decided; NULL: not decided yet
    struct policy_decision decision;
    uint64_t judged_epoch;     // gate->policy_epoch at the decision
    bool by_uri;               // completion: the reference is a resource
    struct limit_hold limits;  // its slots in limits.rates, until it is over
    bool silent;               // the call ends without an answer
    bool new_session;          // the call opened its session
    bool caller_token_shared;  // until caller_token_end()
    int64_t asked_ms;          // when it first needed lists; 0: not yet
    struct loop_timer timer;

    // to the server and back
    struct upstream_request request;
    int64_t sent_us;             // when it was passed to the server
    struct span progress_token;  // raw, of the caller
    unsigned pages_out;          // open requests of a merged tasks/list
    struct task_page *task_pages;
    struct call_task {
        struct list node;   // in link->task_calls
        struct link *link;  // NULL: the call asked for no task, or the server is gone
        struct span id;     // of the task that the server created; at is NULL until then
    } task;

    // the answer
    struct audit_wait row;  // for its audit row, which is written before the answer is sent if audit is required
    struct err err;
    struct buf error_data;               // raw JSON members for error.data
    const char *error_text;              // replaces the text of the code; or NULL
    struct login_offer *offer;           // the connect link that the call waits for
    int64_t retry_ms;                    // the Retry-After of the error; 0: none
    const struct upstream_reply *reply;  // of the server; valid only while the call is resumed with it
    struct upstream_reply kept;          // a large reply, without its text
    struct shaping *shaping;             // makes `answer` of a large reply, or NULL
    struct buf text;                     // the complete JSON-RPC message
    struct blob *answer;                 // the same for a large message or a batch; NULL: it is in `text`
    struct budget_hold text_held;
    struct stream *stream;  // of this call's messages, or NULL
};

// call.c
struct call *call_new(struct gate *gate);
void call_free(void *object);  // for loop_reap()
// Sends the caller a message that belongs to this call. The first message opens the event stream of the call.
void call_tell(struct call *call, struct blob *message);
void call_open_stream(struct call *call);
size_t call_answer_len(const struct call *call);  // 0: no answer
struct blob *call_take_batch(struct call *call);  // the answers of the parts so far
void call_deliver(struct call *call);             // sends the answer to the arrival, the stream or the batch

void call_set_phase(struct call *call, size_t phase);
void call_set_state(struct call *call, enum call_state state);
void call_set_batch(struct call *call, enum batch_state state);
void call_resume(struct call *call);
// Ends the call without an answer, because its caller cancelled it.
void call_end_silently(struct call *call, const char *reason);
// Ends the call with an error whose text is `reason`, because the gateway stops or the session is over.
void call_break_off(struct call *call, enum err_code code, const char *reason);
bool call_is_open(const struct call *call);  // the call can still be ended
void call_give_up_row(struct call *call);    // stops waiting for the audit row, at shutdown
void call_join_session(struct call *call, struct session *joined);
void call_set_scope(struct call *call, struct scope *scope);  // once: the call keeps the scope to its end
// While the gateway stops, only messages that belong to calls in flight are accepted. True: this one is not; call->err is set.
bool call_comes_too_late(struct call *call);
// The call that a request to a server was sent for, or NULL.
struct call *call_of_request(const struct link *link, const struct upstream_request *request);
bool call_is_allowed(const struct call *call);  // by the last decision of the policy
// Checks limits.session_calls, before a call waits for lists and again before it is sent. False: call->err is set.
bool call_within_session(struct call *call) MUST_CHECK;

// Sets call->err and evaluates to PHASE_FAIL.
#define call_fail(call, code, ...) ((void)err_set(&(call)->err, (code), __VA_ARGS__), PHASE_FAIL)
// Notes that the target does not exist. The caller learns it only after `authorize`, so that a denial does not disclose it.
enum phase_result call_missing(struct call *call, enum err_code code);
// Refused for now, after call->err was set: the error says when the caller may try again.
enum phase_result call_put_off(struct call *call, int64_t retry_ms);
// Decodes a string of the params (or of `in`, one of their members). False: it is absent or not a string.
bool call_text_param(struct call *call, const char *in, const char *name, struct span *out);
// Begins the answer with a result. The method appends the raw JSON, and the phase `shape` closes it.
struct buf *call_begin_result(struct call *call);

#endif
