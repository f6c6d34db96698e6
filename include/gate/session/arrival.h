// An arrival, which a face passes to the gate: one HTTP request or one message on a pipe, without any HTTP in it.
#ifndef GATE_ARRIVAL_H
#define GATE_ARRIVAL_H

#include "auth/caller/credentials.h"
#include "base/budget.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/span.h"
#include "gate/session/stream.h"

struct gate;
struct arrival;

enum arrival_op {
    ARRIVAL_MESSAGE,  // a body with a JSON-RPC message or batch
    ARRIVAL_LISTEN,   // GET of a session: its standalone stream, or resumption
    ARRIVAL_PIPE,     // a caller whose answers all go to one pipe opens it (HTTP+SSE, stdio)
    ARRIVAL_END,      // DELETE of a session
    ARRIVAL_UNREAD,   // a message whose body was not read, because its caller was not admitted; see gate_welcomes()
};

struct answer {
    int status;
    enum err_code code;        // of the error, or ERR_NONE
    struct buf body;           // moves to the face; empty: no body, or it is in
    struct blob *large;        // a large body, maybe in parts, whose reference moves to the face; or NULL
    struct budget_hold *held;  // the hold of the body, for budget_hand_over(); valid during the call
    const char *session_id;    // of a new session, or NULL; valid during the call
    int64_t retry_ms;          // the Retry-After; 0: none
};

struct arrival_ops {
    // Exactly one of these is called, once; afterwards the gate does not use the arrival.
    void (*answer)(struct arrival *arrival, struct answer *answer);
    // The face attaches a sink of its own and sends the messages that it pulls.
    void (*stream)(struct arrival *arrival, struct stream *stream, const char *session_id);
};

// The result of an admission before the body was read. The credentials are not checked again.
struct arrival_admission {
    enum { ARRIVAL_UNCHECKED, ARRIVAL_ADMITTED, ARRIVAL_REFUSED, ARRIVAL_UNDECIDED } outcome;
    struct err err;  // ARRIVAL_REFUSED
    int64_t retry_ms;
};

struct arrival {
    enum arrival_op op;
    struct credentials credentials;
    struct span session_id;  // at is NULL if absent
    struct span version;     // MCP-Protocol-Version
    struct span last_event_id;
    struct span profile;  // its name, not checked yet; at is NULL if absent
    struct buf body;      // moves to the gate, together with its hold
    struct budget_hold held;
    bool pipe;                   // the answer goes to the session's pipe
    bool authenticated;          // set by the gate as soon as the providers have accepted the caller
    const struct identity *who;  // set by the gate when it is known, for the log; the face releases the reference
    struct arrival_admission admission;
    const struct arrival_ops *ops;
    void *arg;
    void *call;  // the gate's
};

#endif
