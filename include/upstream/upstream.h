// One live connection to one configured server: it takes requests, and delivers answers and the server's own
// messages. The first request starts the server. After a failure it is started again, with back-off.
#ifndef UPSTREAM_UPSTREAM_H
#define UPSTREAM_UPSTREAM_H

#include "base/blob.h"
#include "base/err.h"
#include "base/list.h"
#include "base/span.h"
#include "loop/http_client.h"
#include "loop/loop.h"
#include "loop/offload.h"
#include "mcp/message.h"
#include "mcp/revision.h"
#include "upstream/server.h"
#include <stdbool.h>
#include <stdint.h>

struct upstream;
struct upstream_request;

enum upstream_state {
    UPSTREAM_DOWN,      // not running; a request starts it
    UPSTREAM_STARTING,  // starting and shaking hands; requests wait
    UPSTREAM_READY,
    UPSTREAM_BACKOFF,  // failed; requests wait for the next start, or fail if the circuit is open
    UPSTREAM_RESTING,  // not used, and being ended; requests wait until it is started again
    UPSTREAM_CLOSING,  // closing; new requests fail
};

// Exactly one of the first three is set.
struct upstream_reply {
    const struct err *failure;
    struct span result;        // raw JSON, valid during the callback
    struct span error;         // raw JSON-RPC error object, valid during the callback
    struct budget_hold *held;  // counts the text in a budget, for a receiver that copies it; NULL: nothing, or `owner`
    int64_t retry_after_ms;    // with an error: the server said when to try again; 0: it did not
    struct blob *owner;        // contains those bytes, for a receiver that keeps them; NULL: the text is small, copy it
    struct span message;  // with an owner: the whole message; the receiver may overwrite all but `result` and `error`
};

// Where a request is; src/upstream/request.c has the transitions.
enum upstream_request_state {
    UPSTREAM_REQUEST_OVER,      // answered, failed or cancelled, or never reserved
    UPSTREAM_REQUEST_RESERVED,  // it has an id
    UPSTREAM_REQUEST_WAITING,   // for the server to be ready
    UPSTREAM_REQUEST_SENT,      // in flight
    UPSTREAM_REQUEST_REFUSED,   // waits for another token
    UPSTREAM_REQUEST_FAILING,   // fails from the loop, or with its connection
};

// Why a request was sent again. Each reason counts at most once for a request.
enum upstream_retry {
    UPSTREAM_RETRY_SESSION = 1 << 0,  // another session
    UPSTREAM_RETRY_TOKEN = 1 << 1,    // another token
    UPSTREAM_RETRY_SCOPE = 1 << 2,    // a token with more scope
    UPSTREAM_RETRY_UNSENT = 1 << 3,   // another connection: not a byte of it had been written
};

// A request in flight. Embed it zeroed, fill the callbacks, and keep it until on_reply or a cancel.
struct upstream_request {
    void (*on_reply)(struct upstream_request *request, const struct upstream_reply *reply);
    void (*on_progress)(struct upstream_request *request, struct span params);  // may be NULL
    // Called before the request goes to the server if it may have waited since upstream_request_send(): for the server to start, for a
    // token, for a connection, or to be sent again. False: it fails with this error, and nothing is sent. May be NULL.
    bool (*may_send)(struct upstream_request *request, struct err *err);
    void *arg;
    const struct identity *who;  // the caller that the request is made for; NULL: the gateway itself
    const char *list;       // the member of the result whose valid elements are used although others are not; or NULL
    int64_t timeout_ms;     // time without an answer or progress; 0: the server's `timeout`
    struct budget *memory;  // counts the answer while it is read; NULL: the budget of the connection
    // private to the upstream and its transport
    struct upstream *upstream;
    enum upstream_request_state state;
    uint64_t id;
    struct list node;
    struct loop_timer timeout;
    int64_t started_ms, sent_ms;
    int64_t held_ms, held_until_ms;
    int64_t patience_ms;  // the Retry-After of the server's answer
    int64_t stopped_ms;   // when its clock was stopped; 0: it runs
    struct blob *text;    // while it waits for the server to be ready, or may be sent again
    void *transfer;
    bool initial;      // it is the initialize of the handshake
    unsigned retried;  // the set of enum upstream_retry for which it was sent again
};

// Callbacks to the owner of the connection, for everything but the answers to its requests.
struct upstream_listener {
    void (*on_state)(void *arg, struct upstream *upstream);
    // `origin`: the request on whose own stream the message came (HTTP only), or NULL.
    void (*on_notification)(void *arg, struct upstream *upstream, const struct message *message,
                            struct upstream_request *origin);
    void (*on_request)(void *arg, struct upstream *upstream, const struct message *message,
                       struct upstream_request *origin);
    // Called before each start; NULL: the server may always start. A start that was allowed ends with a state other than
    // UPSTREAM_STARTING and UPSTREAM_READY. After false with ERR_PROCESSES, requests fail with this error, and the next
    // request asks again.
    bool (*may_start)(void *arg, struct err *err);
};

struct upstream_abilities {
    bool tools_changed, prompts_changed, resources_changed;  // the server announces changes of this list
    bool tools, prompts, resources, completions, logging, tasks, tasks_list;
};

struct upstream_spec {
    struct loop *loop;
    struct http_client *http;
    const struct server *server;
    const char *capabilities;  // the capabilities of the gateway as a client, raw JSON object
    size_t max_message;
    const struct upstream_listener *listener;
    void *arg;
    // These four outlive the upstream.
    struct access *access;                 // provides the Authorization header; NULL: none is sent
    struct identity_assertion *assertion;  // identifies the caller to the server; NULL: nothing does
    struct offload *background;            // parses large messages; NULL: they are parsed on the loop
    struct budget *memory;                 // counts messages of the server while they are read; NULL: they do not count
};

struct upstream *upstream_new(const struct upstream_spec *spec);
void upstream_start(struct upstream *upstream);
// To be called when the grant was replaced. Gives up the connection that was opened with the old grant; the next request opens
// a new one.
void upstream_restart(struct upstream *upstream);
// Ends a server that is ready and not used, within the time. Then it is UPSTREAM_DOWN until the next request. Does nothing in another
// state, or while it is in use.
void upstream_rest(struct upstream *upstream, int64_t within_ms);
bool upstream_in_use(const struct upstream *upstream);  // requests are in flight, or wait to be sent
// Closes the connection within the time. on_closed is called when it has ended, and may call upstream_free().
void upstream_close(struct upstream *upstream, int64_t within_ms,
                    void (*on_closed)(void *arg, struct upstream *upstream), void *arg);
void upstream_free(struct upstream *upstream);

// Returns the id that the request will have, which may also serve as its progress token.
uint64_t upstream_request_reserve(struct upstream *upstream, struct upstream_request *request);
// Sends a reserved request. A failure arrives through on_reply too, never before this returns.
void upstream_request_send(struct upstream_request *request, const char *method, struct span params);
// The same for a complete message, which contains the id of the request. Takes over the reference.
void upstream_request_send_message(struct upstream_request *request, struct blob *message);
// Forgets the request and sends notifications/cancelled; on_reply will not be called. No effect if it is not in flight.
void upstream_request_cancel(struct upstream_request *request, const char *reason);
// Forgets the request. True: it was sent, under `request->id`, and the caller of this function has to call
// upstream_message_cancelled().
bool upstream_request_forget(struct upstream_request *request) MUST_CHECK;
void upstream_message_cancelled(struct upstream *upstream, uint64_t id, const char *reason);
// Extends the timeout of the request to at least this time, while a question of the server to the caller is open. 0: ends that.
void upstream_request_hold(struct upstream_request *request, int64_t patience_ms);

void upstream_message_notify(struct upstream *upstream, const char *method, struct span params);
void upstream_message_answer(struct upstream *upstream, struct span id, struct span result);
void upstream_message_refuse(struct upstream *upstream, struct span id, int code, const char *reason);
// Sends a complete message unchanged: an answer, or a notification. Both take over the reference.
void upstream_message_pass(struct upstream *upstream, struct blob *message);
void upstream_message_pass_notification(struct upstream *upstream, struct blob *message);

// Stops reading from the server and delivering messages until upstream_resume(), for a listener that cannot keep up. Both may be
// called from the listener's callbacks, and repeated calls have no effect.
void upstream_pause(struct upstream *upstream);
void upstream_resume(struct upstream *upstream);

enum upstream_state upstream_state(const struct upstream *upstream);
const struct server *upstream_server(const struct upstream *upstream);
const struct upstream_abilities *upstream_abilities(const struct upstream *upstream);
struct span upstream_instructions(const struct upstream *upstream);  // decoded; empty if none
// The result of initialize, raw JSON; empty before the first one, or if it is larger than 64 KiB.
struct span upstream_greeting(const struct upstream *upstream);
// Uses the result that an earlier connection received, until the server itself answers. False: it cannot be used.
bool upstream_restore(struct upstream *upstream, struct span greeting) MUST_CHECK;
struct span upstream_declared(
    const struct upstream *upstream);  // capabilities, raw JSON; empty if none, or above 16 KiB
enum revision upstream_revision(const struct upstream *upstream);
const char *upstream_problem(const struct upstream *upstream);  // why it is down, for operators; "" if it is not
// The login of the grant that the connection was opened with, which another login may have replaced since; 0: none.
int64_t upstream_login(const struct upstream *upstream);
bool upstream_needs_login(const struct upstream *upstream);  // it is down because a login is needed
// ERR_LOGIN or ERR_PROCESSES if the server could not be started for this reason; otherwise ERR_NONE.
enum err_code upstream_refusal(const struct upstream *upstream);
// How much is left of a pause in which requests fail, because the server asked for it (Retry-After) or the circuit is open, in
// milliseconds; 0: it is not in such a pause.
int64_t upstream_pause_left(const struct upstream *upstream);
bool upstream_circuit_open(const struct upstream *upstream);  // too many failures in a row
// Appends the last lines, at most `max`, that a stdio server wrote to stderr since it was last started.
void upstream_put_stderr(const struct upstream *upstream, size_t max, struct buf *out);
// Adds some of them to the detail of an error, in one line without control characters.
void upstream_add_stderr(const struct upstream *upstream, struct err *err);
// The lines that are kept, also those of processes that have ended: of any bytes, each with a line end. Valid until the next line.
struct span upstream_stderr(const struct upstream *upstream);
long upstream_pid(const struct upstream *upstream);          // of a stdio server that runs; else 0
int64_t upstream_ready_ms(const struct upstream *upstream);  // for how long it has been ready; 0: it is not

#endif
