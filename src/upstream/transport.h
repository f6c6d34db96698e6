// What a transport offers the state machine, and what transports share.
#ifndef UPSTREAM_TRANSPORT_H
#define UPSTREAM_TRANSPORT_H

#include "upstream.h"

// Messages that no caller waits for (answers to the server, notifications) which may be on their way to an HTTP server.
// One that takes none of them, or asks faster than it listens, is given up.
#define TRANSPORT_UNASKED_MAX 4096

struct transport {
    const char *name;
    // Begins; the handshake may be sent at once when it returns true.
    bool (*start)(struct upstream *upstream, struct err *err);
    // One whole message. `request` is NULL for notifications and answers.
    void (*send)(struct upstream *upstream, struct blob *message, struct upstream_request *request);
    void (*forget)(struct upstream *upstream, struct upstream_request *request);
    // initialize is answered: sends notifications/initialized and calls on_ready() once the server has it, so that no request
    // overtakes it on another connection.
    void (*greet)(struct upstream *upstream, struct blob *initialized);
    // Ends; calls on_stopped() when nothing is left, maybe at once.
    void (*stop)(struct upstream *upstream, int64_t within_ms);
    void (*release)(struct upstream *upstream);  // frees upstream->wire
    void (*resume)(struct upstream *upstream);   // reads on: upstream->paused was set, and is not any more
};

extern const struct transport transport_stdio, transport_http, transport_sse;

long transport_stdio_pid(const struct upstream *upstream);  // 0: its server does not run, or has another transport

void transport_note_byte(struct upstream *upstream);                    // the server has sent or taken one: it lives
void transport_lose(struct upstream *upstream, const struct err *err);  // on_lost(), at the end of the turn
void transport_lose_deaf(struct upstream *upstream);                    // there are TRANSPORT_UNASKED_MAX

// ---- of HTTP --------------------------------------------------------------------------------

// A URL of the server, with the headers and authorities that its configuration gives it.
struct http_target *transport_target(const struct upstream *upstream, const char *url);
// The token as it is now; its version. 0: there is none.
unsigned transport_present(const struct upstream *upstream, struct http_target *target);
// The assertion that tells a server who calls, if it wants one; NULL: it cannot be signed.
const char *transport_assertion(struct upstream *upstream, const struct identity *who);
// Its header, before each transfer. NULL: not for a caller's request. Nothing rather than something old.
void transport_put_assertion(struct upstream *upstream, struct http_target *target,
                             const struct upstream_request *request);
// The server cannot be reached, so a request was not sent. If nothing else is under way there, the server is lost; the request is
// sent once more in any case. False: that was its second try.
bool transport_unreachable(struct upstream *upstream, struct upstream_request *request, bool busy,
                           const struct err *err);
// A transfer refers to a large message, and copies a small one.
void transport_set_body(struct http_request *request, struct blob *message);
// From on_head: access learns why it was refused. How long the server wants to be left alone, in ms; 0: it does not say.
int64_t transport_hear(struct upstream *upstream, struct http_transfer *transfer, int status);

#endif
