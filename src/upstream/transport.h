// The interface between the state machine and its transports, and the functions that transports share.
#ifndef UPSTREAM_TRANSPORT_H
#define UPSTREAM_TRANSPORT_H

#include "upstream.h"

// How many messages without an answer (notifications, and answers to the server) may wait to be sent to an HTTP server. A server
// that does not accept them, or sends requests faster than it reads the answers, is given up.
#define TRANSPORT_UNASKED_MAX 4096

struct transport {
    const char *name;
    // Starts the transport. If it returns true, the handshake may be sent at once.
    bool (*start)(struct upstream *upstream, struct err *err);
    // Sends one message. `request` is NULL for notifications and answers.
    void (*send)(struct upstream *upstream, struct blob *message, struct upstream_request *request);
    void (*forget)(struct upstream *upstream, struct upstream_request *request);
    // Called when initialize is answered. Sends notifications/initialized, and calls on_ready() once the server has received it,
    // so that no request overtakes it on another connection.
    void (*greet)(struct upstream *upstream, struct blob *initialized);
    // Stops the transport; calls on_stopped() when it has ended, maybe at once.
    void (*stop)(struct upstream *upstream, int64_t within_ms);
    void (*release)(struct upstream *upstream);  // frees upstream->wire
    void (*resume)(struct upstream *upstream);   // continues to read, after upstream->paused was cleared
};

extern const struct transport transport_stdio, transport_http, transport_sse;

long transport_stdio_pid(const struct upstream *upstream);  // 0: the server does not run, or has another transport

void transport_note_byte(struct upstream *upstream);                    // the server has sent or taken one: it lives
void transport_lose(struct upstream *upstream, const struct err *err);  // on_lost(), at the end of the turn
void transport_lose_deaf(struct upstream *upstream);                    // after TRANSPORT_UNASKED_MAX messages

// ---- of HTTP --------------------------------------------------------------------------------

// Makes a target for a URL of the server, with the headers and authorities of its configuration.
struct http_target *transport_target(const struct upstream *upstream, const char *url);
// Sets the Authorization header from the current token and returns the token's version; 0 without `access`.
unsigned transport_present(const struct upstream *upstream, struct http_target *target);
// The identity assertion for the caller. NULL: it cannot be signed, which is logged.
const char *transport_assertion(struct upstream *upstream, const struct identity *who);
// Sets the header of the assertion; to be called before each transfer. `request` NULL: not for a caller. If the assertion cannot
// be signed, the header of the last transfer is removed.
void transport_put_assertion(struct upstream *upstream, struct http_target *target,
                             const struct upstream_request *request);
// The server cannot be reached, so a request was not sent. If nothing else is under way there, the server is lost; the request is
// sent once more in any case. False: that was its second try.
bool transport_unreachable(struct upstream *upstream, struct upstream_request *request, bool busy,
                           const struct err *err);
// Sets the body: a large message is referenced, a small one is copied.
void transport_set_body(struct http_request *request, struct blob *message);
// To be called from on_head: passes the challenge of a refused request to `access`. Returns the Retry-After in ms; 0: none.
int64_t transport_hear(struct upstream *upstream, struct http_transfer *transfer, int status);

#endif
