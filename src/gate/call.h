// One call: a message or session operation on its way through the phases.
#ifndef GATE_CALL_H
#define GATE_CALL_H

#include "base/arena.h"
#include "base/secret.h"
#include "state.h"

struct offer;
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
    struct secret caller_token;  // the JWT it came with, if some server exchanges such
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
    bool batched, split;

    // what the phases found out
    size_t phase;
    struct identity *identity;
    const struct profile *profile;  // NULL: none was asked for
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
    bool authorized, dispatched, recorded, ending, silent, new_session, offered, lent;
    int64_t asked_ms;  // when it first needed lists; 0: it has not yet
    struct loop_timer timer;

    // to the server and back
    struct upstream_request request;
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
    struct offer *offer;                 // the connect link it waits for, of hosted_offer.c
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

// phase.c
void call_start(struct gate *gate, struct arrival *arrival);
void call_resume(struct call *call);
// Ends it without an answer: its caller cancelled it.
void call_end_silently(struct call *call, const char *reason);
// Ends it with an error, whose text `reason` is: the gateway stops, or the session is over.
void call_break_off(struct call *call, enum err_code code, const char *reason);
// The call that a request to a server was sent for; NULL if it was for none.
struct call *call_of_request(const struct link *link, const struct upstream_request *request);
// Begins the answer with a result; the method appends its raw JSON, shaping closes it.
struct buf *call_begin_result(struct call *call);

// The call was allowed and has waited since: is it still, by the policy now in force? False: call->err says why not.
bool call_still_allowed(struct call *call) MUST_CHECK;
// limits.session_calls. False: call->err says so. Asked before a call waits for lists, and again before it is sent.
bool call_within_session(struct call *call) MUST_CHECK;

// dispatch.c
enum phase_result call_route(struct call *call);
enum phase_result call_dispatch(struct call *call);
void dispatch_abandon(struct call *call, const char *reason);  // takes back what is still out, and tells the server why
void dispatch_note_task(struct call *call, struct span raw_id);  // the server made one for this call
// Who may: anybody who is somebody, the policy asked about one thing, or the owner of a task.
enum permit { PERMIT_NOBODY, PERMIT_ANYBODY, PERMIT_POLICY, PERMIT_OWNER };
enum permit call_permit(const struct call *call, enum policy_kind *kind);

// shaping.c: `answer` of a large reply; resumes the call, maybe at once.
void shaping_start(struct call *call, const struct upstream_reply *reply);
void shaping_drop(struct call *call);

// arguments.c: what the policy judges besides the name, in call->arguments, and as a tree if a rule looks at it; else
// *out is NULL. False: they are malformed.
bool arguments_read(struct call *call, const struct policy_question *question, json_t **out) MUST_CHECK;

// loan.c: the caller's own token, for servers that exchange it
bool loan_wanted(const struct config *config);
void loan_keep(struct call *call);   // once it is known who calls
void loan_begin(struct call *call);  // once it is known which servers there are
void loan_end(struct call *call);
void loan_tell(struct call *call);  // it ended with ERR_LOGIN: says why to its caller

// Neither over nor being ended: it can be ended.
bool call_is_open(const struct call *call);
// The gateway has no time to wait for its row.
void call_give_up_row(struct call *call);

// record.c
enum phase_result record_call(struct call *call);
void record_session_over(const struct session *session);  // because its credential is no longer good

#endif
