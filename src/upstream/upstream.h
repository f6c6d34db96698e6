// The upstream as its own files see it: the object, and the events that go up to its state machine.
//
//   upstream.c          the state machine: start, loss, back-off, end
//   handshake.c         initialize and its answer
//   renewal.c           requests that wait for another token
//   liveness.c          servers that hang
//   transport_*.c       one file per transport, over transport.c, incoming.c, parsing.c and intake.c
//   receive.c           messages from the server: finds the request that an answer belongs to
//   request.c           states and timeouts of requests
//   message.c           messages to the server that have no answer
//
// A file calls only the files below it. The state machine is notified through `events`.
#ifndef UPSTREAM_H
#define UPSTREAM_H

#include "auth/access/access.h"
#include "base/map.h"
#include "stderr_tail.h"
#include "upstream/upstream.h"

struct transport;

enum { UPSTREAM_CIRCUIT_AFTER = 5 };  // failures

struct upstream_events {
    void (*on_needed)(struct upstream *upstream);  // a request is to be sent: starts the server if it is down
    void (*on_ready)(struct upstream *upstream);   // the server has received notifications/initialized
    // After either of these two calls the wire may have been freed.
    void (*on_lost)(struct upstream *upstream, const struct err *err);
    void (*on_stopped)(struct upstream *upstream);
    void (*on_session_lost)(struct upstream *upstream);    // shakes hands again
    void (*on_not_streamable)(struct upstream *upstream);  // tries HTTP+SSE
    // The token of this version was refused during the handshake, which is repeated with another token.
    void (*on_greeted_late)(struct upstream *upstream, unsigned version);
    void (*on_idle)(struct upstream *upstream);  // the stream on which it answers has brought nothing for a long time
    void (*on_timeout)(struct upstream *upstream, const struct upstream_request *request);  // it is about to fail
    void (*on_other_login)(struct upstream *upstream);  // the new token may belong to another account
};

struct upstream {
    struct upstream_spec spec;
    const struct server *server;
    const struct upstream_events *events;
    const struct transport *transport;
    void *wire;  // the transport's own
    enum upstream_state state;
    int64_t ready_since_ms;
    enum revision revision;
    struct upstream_abilities abilities;
    struct buf instructions, declared;
    struct buf greeting;  // that both are from; empty if it is too long to be kept
    uint64_t next_id;
    struct map in_flight;       // id -> request
    unsigned told;              // notifications sent, each of which a broken server may answer
    uint64_t told_after;        // they were sent after the request with this id
    unsigned given_up;          // requests that timed out or were cancelled, and may still be answered
    struct list waiting;        // requests that wait for READY
    struct budget_hold *taken;  // counts the message that is being delivered; NULL: nothing does
    int64_t stopped_ms;         // when the clock of its requests was stopped; 0: it runs
    struct upstream_request hello, ping;
    int64_t last_byte_ms;  // when the server last sent a byte, or read from a full pipe
    int64_t timed_out_ms;  // when a request first timed out after that; 0: none has
    struct loop_timer retry;
    struct loop_task fail_later;  // failures that must not come from inside upstream_request_send()
    struct list failing;
    struct loop_task lose;  // gives up the wire, because of `why`
    struct err why;
    bool losing;
    bool paused;        // nothing is read or delivered, except that the transport may finish the message at hand
    unsigned failures;  // in a row: failed starts, and lives without an answer
    unsigned losses;    // since a caller's request was last answered
    bool answered;      // it has answered a request since it was last started
    char problem[512];
    struct stderr_tail tail;     // of a stdio server; kept after it has ended
    enum err_code refusal;       // ERR_LOGIN: no valid grant; ERR_PROCESSES: may_start() refused; ERR_NONE: neither
    bool greeted_late;           // the token expired during this handshake
    bool put_off;                // the server asked for the current pause
    bool wake;                   // needed again before it has ended (UPSTREAM_RESTING)
    bool asked;                  // a wire was opened since begin()
    int64_t login;               // the login that the connection was opened with: access_login()
    struct access_wait ready;    // for a token, before the server is started
    struct access_wait renewal;  // for another token
    struct list refused;         // requests that wait for another token
    void (*on_closed)(void *arg, struct upstream *upstream);
    void *closed_arg;
};

// A request that comes now waits for a start, which is under way or follows soon.
static inline bool upstream_awaits_start(const struct upstream *upstream)
{
    return upstream->state == UPSTREAM_STARTING || upstream->state == UPSTREAM_RESTING ||
           (upstream->state == UPSTREAM_BACKOFF && !upstream->refusal && !upstream->put_off &&
            upstream->failures < UPSTREAM_CIRCUIT_AFTER);
}

#endif
