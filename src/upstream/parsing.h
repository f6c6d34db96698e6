// A message above MESSAGE_LARGE, or a batch of them, which a worker thread parses. The transport keeps back what follows on the
// same connection until then.
#ifndef UPSTREAM_PARSING_H
#define UPSTREAM_PARSING_H

#include "upstream.h"

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

// Takes over the reference; on_parsed comes from the loop, never from inside, and hands it to receive_parsed().
struct parsing *parsing_start(struct upstream *upstream, struct blob *owner, struct span text,
                              void (*on_parsed)(void *arg, struct parsing *parsing), void *arg);
void parsing_drop(struct parsing *parsing);  // no callback follows; NULL is harmless

#endif
