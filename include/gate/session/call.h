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

// What a phase says to the runner. Zero fails.
enum phase_result {
    PHASE_FAIL,  // call->err says why
    PHASE_NEXT,
    PHASE_WAIT,   // call_resume() will run the same phase again
    PHASE_REPLY,  // skip to shaping the answer
};

typedef enum phase_result phase_fn(struct call *call);

// What the lower files need of the phases: phase.c gives it to the gate.
struct call_runner {
    void (*run)(struct call *call);  // through the phases, from where it is
    void (*end)(struct call *call, const struct err *why, bool silent);
    bool (*may_send)(struct upstream_request *request, struct err *err);  // is it still allowed? Only calls have this
};

// How far a call has come to its end; it never goes back, and may leave out any of them but the last.
enum call_state {
    CALL_OPEN,
    CALL_DISPATCHED,  // its requests to servers were sent: `dispatch` runs again when the answers are there
    CALL_OFFERED,     // its caller was offered a connect link, which happens once
    CALL_ENDING,      // it is being ended before its time
    CALL_RECORDED,    // in the log and the audit; only its answer is left
};

enum batch_state { BATCH_NONE, BATCH_WHOLE, BATCH_SPLIT };

#define SESSION_RETRY_MS 1000
#define SHARED_MIN ((size_t)64 << 10)  // of a body, to a server: below it, a copy costs less than a reference

struct call {
    struct gate *gate;
    struct list node, quick_node, session_node, unread_node, link_node, wait_node;
    struct arena arena;
    char request_id[17];  // the same in every log line of the call
    int64_t started_us;

    // what came
    enum arrival_op op;
    struct arrival *arrival;  // NULL once answered, streamed or gone
    struct span session_id, version, last_event_id, profile_name;
    struct credentials credentials;
    struct config_chains *chains;  // those were in force when it began
    struct secret caller_token;    // the JWT it came with, if some server exchanges such
    bool pipe;
    struct blob *body;
    struct budget_hold held;  // for the body and the call itself
    struct reading *reading;  // of a large message or a batch, or NULL
    bool in_turn;             // all that its session sent before it has been read
    struct message message;
    enum method method;
    struct params params;
    const struct arguments *found;  // in a large message; NULL: nothing was

    // a batch: the parent waits for its parts
    struct call *parent;
    struct pieces batch;  // the answers so far, from "[" on
    size_t parts_left;
    enum batch_state batch_state;

    // what the phases found out
    size_t phase;  // enum phase; call_set_phase()
    enum call_state state;
    struct identity *identity;
    struct provider_wait auth_wait;
    struct session *session;
    struct scope *scope;
    struct link *link;
    struct span target;       // the server's own name or URI
    struct span arguments;    // raw, once the policy was asked; at is NULL: there are none
    const char *unconnected;  // names of the servers that may have it, of which `link` is the first; NULL: it is known
    struct tenant *tenant;    // of the identity
    struct policy *policy;    // the one that decided; NULL: none has yet
    struct policy_decision decision;
    uint64_t judged_epoch;     // gate->policy_epoch at the decision
    bool by_uri;               // completion: the reference is a resource
    struct limit_hold limits;  // its slots, until it is over
    bool silent;               // it ends without an answer
    bool new_session;          // it opened its session
    bool caller_token_shared;  // until caller_token_end()
    int64_t asked_ms;          // when it first needed lists; 0: it has not yet
    struct loop_timer timer;

    // to the server and back
    struct upstream_request request;
    int64_t sent_us;             // when it was passed to the server
    struct span progress_token;  // raw, of the caller
    unsigned pages_out;          // requests of a merged tasks/list that are not answered yet
    struct task_page *task_pages;
    struct call_task {
        struct list node;   // in link->task_calls
        struct link *link;  // NULL: it did not ask for one, or the server is gone
        struct span id;     // of the one that the server made; at is NULL: none yet
    } task;

    // the answer
    struct audit_wait row;  // written before the answer is sent, if the audit is required
    struct err err;
    struct buf error_data;               // raw JSON members for error.data
    const char *error_text;              // instead of the code's own; NULL: that one
    struct login_offer *offer;           // the connect link it waits for
    int64_t retry_ms;                    // when the caller may try again, told with the error
    const struct upstream_reply *reply;  // of the server; lives only while the call is resumed with it
    struct upstream_reply kept;          // the same for a large one, without its text
    struct shaping *shaping;             // makes `answer` of it; NULL: nothing does
    struct buf text;                     // the whole JSON-RPC message
    struct blob *answer;                 // the same if it is large, or a batch; NULL: it is in `text`
    struct budget_hold text_held;
    struct stream *stream;  // where this call's messages go, once there is one
};

// call.c
struct call *call_new(struct gate *gate);
void call_free(void *object);  // for loop_reap()
// Something for the caller that belongs to this call: opens an event stream if there is none yet.
void call_tell(struct call *call, struct blob *message);
void call_open_stream(struct call *call);
size_t call_answer_len(const struct call *call);  // 0: there is none
struct blob *call_take_batch(struct call *call);  // the answers that were gathered
void call_deliver(struct call *call);             // the answer, to whoever waits for it

void call_set_phase(struct call *call, size_t phase);
void call_set_state(struct call *call, enum call_state state);
void call_set_batch(struct call *call, enum batch_state state);
void call_resume(struct call *call);
// Ends it without an answer: its caller cancelled it.
void call_end_silently(struct call *call, const char *reason);
// Ends it with an error, whose text `reason` is: the gateway stops, or the session is over.
void call_break_off(struct call *call, enum err_code code, const char *reason);
bool call_is_open(const struct call *call);  // it can be ended
void call_give_up_row(struct call *call);    // the gateway has no time to wait for its row
void call_join_session(struct call *call, struct session *joined);
void call_set_scope(struct call *call, struct scope *scope);  // once: it keeps it to its end
// While the gateway stops, it takes only messages that belong to calls in flight. True: call->err says so.
bool call_comes_too_late(struct call *call);
// The call that a request to a server was sent for; NULL if it was for none.
struct call *call_of_request(const struct link *link, const struct upstream_request *request);
bool call_is_allowed(const struct call *call);  // by the policy, the last time it was asked
// limits.session_calls. False: call->err says so. Asked before a call waits for lists, and again before it is sent.
bool call_within_session(struct call *call) MUST_CHECK;

// Sets call->err; the value is PHASE_FAIL.
#define call_fail(call, code, ...) ((void)err_set(&(call)->err, (code), __VA_ARGS__), PHASE_FAIL)
// What is missing is noted here and said after authorize, so that a denial tells nothing about it.
enum phase_result call_missing(struct call *call, enum err_code code);
// Refused for now, after call->err was set: the error says when the caller may try again.
enum phase_result call_put_off(struct call *call, int64_t retry_ms);
// A string of the parameters (or of `in`, one of their members), decoded; false if it is absent or not a string.
bool call_text_param(struct call *call, const char *in, const char *name, struct span *out);
// Begins the answer with a result; the method appends its raw JSON, shaping closes it.
struct buf *call_begin_result(struct call *call);

#endif
