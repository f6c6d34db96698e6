// A message or batch above MESSAGE_LARGE, which a worker thread parses. Until it is parsed the transport holds the data behind it
// on the same connection.
#ifndef UPSTREAM_PARSING_H
#define UPSTREAM_PARSING_H

#include "upstream.h"

struct parsing {
    struct offload_job job;
    struct loop_task unaided;  // parses it on the loop if no worker takes it
    struct blob *owner;
    struct span text;
    bool valid;
    struct message *messages;  // if it is not valid, the first has what salvage_find() found
    size_t count;
    struct err err;                                         // why it is not valid
    void (*on_parsed)(void *arg, struct parsing *parsing);  // NULL: dropped
    void *arg;
};

// Takes over the reference. on_parsed is called from the loop, never from inside this call, and passes it to receive_parsed().
struct parsing *parsing_start(struct upstream *upstream, struct blob *owner, struct span text,
                              void (*on_parsed)(void *arg, struct parsing *parsing), void *arg);
void parsing_drop(struct parsing *parsing);  // no callback follows; NULL is allowed

#endif
