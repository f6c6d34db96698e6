// The response of one HTTP transfer from a server: an event stream, or one message as its body.
#ifndef UPSTREAM_INCOMING_H
#define UPSTREAM_INCOMING_H

#include "intake.h"
#include "mcp/sse.h"
#include "parsing.h"

struct incoming_owner {
    void (*on_done)(void *arg, const struct err *err);  // the response is too large, and the transfer was cancelled
    // True: the owner has handled the event, and the upstream ignores it. NULL: all events are for the upstream.
    bool (*on_event)(void *arg, const struct sse_event *event);
};

struct incoming {
    struct upstream *upstream;
    const struct incoming_owner *owner;
    void *arg;
    struct http_transfer *transfer;    // NULL: not started, or ended
    struct upstream_request *request;  // the request it answers; NULL: no request, or all of them (`shared`)
    bool shared;                       // it carries the answers to all requests
    bool stray;                        // no request, or an ended one: the server may not ask questions on it
    bool events;                       // an event stream; otherwise a body
    struct buf body;
    struct sse_parser parser;
    struct parsing *parsing;  // the large message that is being parsed; NULL: none
    struct buf held;          // bytes that arrived while reading was held
    bool waiting;             // reading continues with `held` when nothing holds it any more
    struct loop_task more;
    struct intake intake;
};

// `memory`: the budget that counts its bytes.
void incoming_open(struct incoming *incoming, struct upstream *upstream, struct budget *memory);
// Prepares for another transfer, which resumes where the last one ended.
void incoming_restart(struct incoming *incoming);
// Announces the length of the body, from Content-Length.
void incoming_expect(struct incoming *incoming, size_t bytes);
bool incoming_take(struct incoming *incoming, struct span bytes);  // false: stop the transfer
char *incoming_body_room(struct incoming *incoming, size_t bytes);
void incoming_resume(struct incoming *incoming);  // after a pause of the upstream
// Cancels the transfer and the parsing of its messages; no callback follows.
void incoming_close(struct incoming *incoming);
void incoming_release(struct incoming *incoming);  // frees its memory, after incoming_close()

#endif
