// What the files of an upstream share: the object, and the events that go up to its state machine.
//
//   upstream.c          the state machine: start, loss, back-off, end
//   handshake.c         initialize and its answer
//   renewal.c           requests that wait for another token
//   transport_*.c       one file per transport, over transport.c, incoming.c, parsing.c and intake.c
//   receive.c           what a server sends: the request that each answer is for
//   request.c           requests on their way
//   message.c           messages that no request waits for
//
// A file calls those below it. What the state machine has to know goes up through `events`.
#ifndef UPSTREAM_H
#define UPSTREAM_H

#include "auth/access/access.h"
#include "base/map.h"
#include "stderr_tail.h"
#include "upstream/upstream.h"

struct transport;

struct upstream_events {
    void (*on_needed)(struct upstream *upstream);  // a request is to be sent: it starts if it is down
    void (*on_ready)(struct upstream *upstream);   // the server has got notifications/initialized
    // After these two the wire may be gone.
    void (*on_lost)(struct upstream *upstream, const struct err *err);
    void (*on_stopped)(struct upstream *upstream);
    void (*on_session_lost)(struct upstream *upstream);    // shakes hands again
    void (*on_not_streamable)(struct upstream *upstream);  // tries HTTP+SSE
    // The token of this version was refused in the handshake: all of it once more, with another.
    void (*on_greeted_late)(struct upstream *upstream, unsigned version);
    void (*on_other_login)(struct upstream *upstream);  // what the server knows may be about another account
};

struct upstream {
    struct upstream_spec spec;
    const struct server *server;
    const struct upstream_events *events;
    const struct transport *transport;
    void *wire;  // the transport's own
    enum upstream_state state;
    enum revision revision;
    struct upstream_abilities abilities;
    struct buf instructions, declared;
    struct buf greeting;  // that both are from; empty if it is too long to be kept
    uint64_t next_id;
    struct map in_flight;       // id -> request
    unsigned told;              // notifications that the server may answer, by mistake
    uint64_t told_after;        // they were sent after the request of this id
    unsigned given_up;          // requests that timed out or were cancelled, and may be answered late
    struct list waiting;        // for READY
    struct budget_hold *taken;  // what the message that is being handed on is held by; NULL: nothing
    int64_t stopped_ms;         // since when the time of its requests does not count; 0: it does
    struct upstream_request hello;
    struct loop_timer retry;
    struct loop_task fail_later;  // failures that must not come from inside upstream_request_send()
    struct list failing;
    struct loop_task lose;  // the wire, for `why`
    struct err why;
    bool losing;
    bool paused;  // what it sent is not handed on, and nothing more is read, but the transport may finish a message
    unsigned failures;
    int64_t ready_since_ms;
    char problem[512];
    struct stderr_tail tail;   // of a stdio server; kept when it has ended
    enum err_code refusal;     // ERR_LOGIN: no grant, or it has ended; ERR_PROCESSES: of may_start(); ERR_NONE: neither
    bool greeted_late;         // the token ended during this handshake
    bool put_off;              // the pause it is in is one that the server asked for
    bool wake;                 // it is needed again before it has ended (UPSTREAM_RESTING)
    bool asked;                // the server was spoken to since it was last started
    int64_t login;             // whose account that was: access_login()
    struct access_wait ready;  // for a token, before the server is started
    struct access_wait renewal;  // for another token
    struct list refused;         // requests that wait for it
    void (*on_closed)(void *arg, struct upstream *upstream);
    void *closed_arg;
};

#endif
