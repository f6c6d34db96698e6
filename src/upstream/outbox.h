// The messages on their way to a stdio server: framed and written as its pipe takes them, without a copy of a large one.
#ifndef UPSTREAM_OUTBOX_H
#define UPSTREAM_OUTBOX_H

#include "base/blob.h"
#include <stdint.h>

struct outbox {
    struct outbox_message *queue;
    size_t count, room;
    size_t next;        // the first in the queue that is not staged whole
    struct buf staged;  // framed, for the next write; bounded
    size_t sent;        // of it
    size_t bytes;       // of all messages in the queue
};

enum outbox_status {
    OUTBOX_BROKEN,  // nobody reads the pipe any more
    OUTBOX_EMPTY,
    OUTBOX_MORE,  // the pipe is full, or has got enough for one turn
};

void outbox_release(struct outbox *outbox);
// Appends a message, with Content-Length or on a line of its own. `id`: of the request that it is; 0: of none.
void outbox_put(struct outbox *outbox, struct blob *message, uint64_t id, bool counted);
enum outbox_status outbox_write(struct outbox *outbox, int fd);
// The id of a request in the queue of which nothing was written yet; 0: it is none. It may be dropped.
uint64_t outbox_unsent(const struct outbox *outbox, size_t at);
struct blob *outbox_text(const struct outbox *outbox, size_t at);  // a message of the queue
void outbox_drop(struct outbox *outbox, size_t at);

#endif
