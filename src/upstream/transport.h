// Between the upstream state machine and its transports: what each offers the other.
#ifndef UPSTREAM_TRANSPORT_H
#define UPSTREAM_TRANSPORT_H

#include "base/map.h"
#include "upstream/upstream.h"

// Messages that no caller waits for (answers to the server, notifications) which may be on their way to an HTTP server.
// One that takes none of them, or asks faster than it listens, is given up.
#define TRANSPORT_UNASKED_MAX 4096

// Events of one stream that are handed on in a turn: then the others have their turn, however much this one talks.
#define TRANSPORT_EVENTS_A_TURN 128

struct transport {
    const char *name;
    // Begins; the handshake may be sent at once when it returns true.
    bool (*start)(struct upstream *upstream, struct err *err);
    // One whole message. `request` is NULL for notifications and answers.
    void (*send)(struct upstream *upstream, struct blob *message, struct upstream_request *request);
    void (*forget)(struct upstream *upstream, struct upstream_request *request);
    // initialize is answered: sends notifications/initialized and calls upstream_on_ready() once the
    // server has it, so that no request overtakes it on another connection.
    void (*greet)(struct upstream *upstream, struct blob *initialized);
    // Ends; calls upstream_on_stopped() when nothing is left, maybe at once.
    void (*stop)(struct upstream *upstream, int64_t within_ms);
    void (*release)(struct upstream *upstream);  // frees upstream->wire
    void (*resume)(struct upstream *upstream);   // reads on: upstream->paused was set, and is not any more
};

// How long the server wants to be left alone, in milliseconds, if it answers with this status; 0: it does not say.
static inline int64_t transport_patience(struct http_transfer *transfer, int status)
{
    return status == 429 || status == 503 ? http_transfer_retry_after(transfer) : 0;
}

// An HTTP transfer refers to a large message, and copies a small one.
static inline bool transport_is_large(const struct blob *message) { return !message->at || message->len > (64U << 10); }

extern const struct transport transport_stdio, transport_http, transport_sse;

enum { STDERR_LINES = 50 };

struct upstream {
    struct upstream_spec spec;
    const struct server *server;
    const struct transport *transport;
    void *wire;  // the transport's own
    enum upstream_state state;
    enum revision revision;
    struct upstream_abilities abilities;
    struct buf instructions, info, declared;
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
    struct loop_task fail_later;  // failures that must not come from inside upstream_send()
    struct list failing;
    struct loop_task lose;  // the wire, for `why`
    struct err why;
    bool losing;
    bool paused;  // what it sent is not handed on, and nothing more is read, but the transport may finish a message
    unsigned failures;
    int64_t ready_since_ms;
    char problem[512];
    char *tail[STDERR_LINES];  // of a stdio server: what it last wrote to stderr; kept when it has ended
    size_t tail_count;         // lines so far
    enum err_code refusal;     // ERR_LOGIN: no grant, or it has ended; ERR_PROCESSES: of may_start(); ERR_NONE: neither
    bool greeted_late;         // the token ended during this handshake
    bool put_off;              // the pause it is in is one that the server asked for
    bool asked;                // the server was spoken to since it was last started
    int64_t login;             // whose account that was: access_login()
    struct access_wait ready;  // for a token, before the server is started
    struct access_wait renewal;  // for another token
    struct list refused;         // requests that wait for it
    void (*on_closed)(void *arg, struct upstream *upstream);
    void *closed_arg;
};

// A message above MESSAGE_LARGE, or a batch of them, which a worker thread parses. The transport keeps back what follows on
// the same connection until then.
struct parsing {
    struct offload_job job;
    struct loop_task unaided;  // parses it on the loop, where there is no worker
    struct blob *owner;
    struct span text;
    bool valid;
    struct message *messages;  // if it is not valid, the first says what is known of it
    size_t count;
    struct err err;                                         // why it is not valid
    void (*on_parsed)(void *arg, struct parsing *parsing);  // NULL: dropped
    void *arg;
};

// parsing.c. Takes over the reference; on_parsed comes from the loop, never from inside, and hands it to
// receive_parsed().
struct parsing *parsing_start(struct upstream *upstream, struct blob *owner, struct span text,
                              void (*on_parsed)(void *arg, struct parsing *parsing), void *arg);
void parsing_drop(struct parsing *parsing);  // no callback follows; NULL is harmless

// From transports. After upstream_on_lost() or upstream_on_stopped() the wire may be gone.
// `owner`: whose memory the text is in; NULL: it is copied where it is kept.
void receive_message(struct upstream *upstream, struct span text, struct blob *owner, struct upstream_request *origin);
void receive_parsed(struct upstream *upstream, const struct parsing *parsing, struct upstream_request *origin);
// A message that is not kept, because it is above the maximum or for lack of memory: `head` is how it begins.
void receive_dropped(struct upstream *upstream, struct span head, bool no_memory, struct upstream_request *origin);
// To its one on_reply; it is not in flight any more.
void upstream_finish(struct upstream_request *request, const struct upstream_reply *reply);
void upstream_fail(struct upstream_request *request, const struct err *err);
void upstream_on_request_failed(struct upstream *upstream, struct upstream_request *request, const struct err *err);
void upstream_on_lost(struct upstream *upstream, const struct err *err);
void upstream_lose(struct upstream *upstream, const struct err *err);  // the same, at the end of the turn
void upstream_lose_deaf(struct upstream *upstream);                    // there are TRANSPORT_UNASKED_MAX
void upstream_on_stopped(struct upstream *upstream);
// The server cannot be heard outside of requests: it does not announce what changes, whatever it declared.
void upstream_on_unheard(struct upstream *upstream);
void upstream_on_ready(struct upstream *upstream);
void upstream_on_session_lost(struct upstream *upstream);                              // shakes hands again
void upstream_on_resend(struct upstream *upstream, struct upstream_request *request);  // once more, when ready
// The token of this version was refused in the handshake: all of it once more, with another.
void upstream_on_greeted_late(struct upstream *upstream, unsigned version);
// The server does not take the token of this version: once more with another one, or it fails.
void upstream_on_refused(struct upstream *upstream, struct upstream_request *request, unsigned version);
// It wants one with more scope: once more with that, or it fails.
void upstream_on_narrow(struct upstream *upstream, struct upstream_request *request, unsigned version);
// We are not reading what the server sends, for lack of room: that time does not count. NULL: for all requests.
void upstream_stop_clock(struct upstream *upstream, struct upstream_request *request);
void upstream_start_clock(struct upstream *upstream, struct upstream_request *request);  // harmless if it runs
// Before the first byte of a request that may have waited; false: the transport fails it with this error.
bool upstream_may_send(struct upstream_request *request, struct err *err);
void upstream_switch(struct upstream *upstream, const struct transport *transport);
// Before each transfer: the header that tells the server who calls, if it wants one. NULL: not for a caller's request.
void upstream_assert(struct upstream *upstream, struct http_target *target, const struct upstream_request *request);

// intake.c
struct intake {
    struct upstream *upstream;
    struct budget_hold held;
    void (*on_room)(void *arg);
    void *arg;
    bool told;  // that it waits, in the log
};
void intake_open(struct intake *intake, struct upstream *upstream, struct budget *memory, void (*on_room)(void *arg),
                 void *arg);
// So many bytes in all are to be kept. False: not before on_room(), which comes from the loop; until then nothing more is
// read.
bool intake_cover(struct intake *intake, size_t bytes) MUST_CHECK;
bool intake_waits(const struct intake *intake);
void intake_keep(struct intake *intake, size_t bytes);            // of what was taken, only so many are still kept
void intake_hand_over(struct intake *intake, struct blob *blob);  // which has the memory of a message now
// receive_message(), whose receiver may take over what the message is held by.
void intake_deliver(struct intake *intake, struct span text, struct blob *owner, struct upstream_request *origin);
void intake_close(struct intake *intake);  // harmless if it was never opened

#endif
