// What one HTTP transfer brings from a server: an event stream, or one message as its body.
#ifndef UPSTREAM_INCOMING_H
#define UPSTREAM_INCOMING_H

#include "intake.h"
#include "mcp/sse.h"
#include "parsing.h"

struct incoming_owner {
    void (*on_done)(void *arg, const struct err *err);  // too large: the transfer was cancelled
    // An event that is not for the upstream: true, it is dealt with. NULL: there is none.
    bool (*on_event)(void *arg, const struct sse_event *event);
};

struct incoming {
    struct upstream *upstream;
    const struct incoming_owner *owner;
    void *arg;
    struct http_transfer *transfer;    // NULL: there is none, or it is over
    struct upstream_request *request;  // whose answer it brings; NULL: that of none, or of all
    bool shared;                       // it brings the answers to all requests
    bool stray;                        // its request is over, or it has none: nothing may be asked on its behalf
    bool events;                       // an event stream; else a body
    struct buf body;
    struct sse_parser parser;
    struct parsing *parsing;  // a large message of it; NULL: none
    struct buf held;          // what came after that or after a slice, or waits for room
    bool waiting;             // `held` is to be read when nothing holds it back any more
    struct loop_task more;
    struct intake intake;
};

// `memory`: that its bytes count for.
void incoming_open(struct incoming *incoming, struct upstream *upstream, struct budget *memory);
// Another transfer begins, which goes on where the last one ended.
void incoming_restart(struct incoming *incoming);
// Its head says that so many bytes will come.
void incoming_expect(struct incoming *incoming, size_t bytes);
bool incoming_take(struct incoming *incoming, struct span bytes);  // false: the rest is not wanted
char *incoming_body_room(struct incoming *incoming, size_t bytes);
void incoming_resume(struct incoming *incoming);  // the upstream is not paused any more
// Cancels the transfer and what is parsed of it; no callback follows.
void incoming_close(struct incoming *incoming);
void incoming_release(struct incoming *incoming);  // its memory, after that

#endif
