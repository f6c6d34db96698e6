// The queue of messages to a stdio server: framed, and written as the pipe accepts them, without a copy of a large message.
#ifndef UPSTREAM_OUTBOX_H
#define UPSTREAM_OUTBOX_H

#include "base/blob.h"
#include <stdint.h>

struct outbox {
    struct outbox_message *queue;
    size_t count, room;
    size_t next;        // index of the first message that is not completely staged
    struct buf staged;  // framed, for the next write; bounded
    size_t sent;        // bytes of `staged` that are written
    size_t bytes;       // of all messages in the queue
};

enum outbox_status {
    OUTBOX_BROKEN,  // the reading end of the pipe is closed
    OUTBOX_EMPTY,
    OUTBOX_MORE,  // the pipe is full, or the writes of one turn are used up
};

void outbox_release(struct outbox *outbox);
// Appends a message, with Content-Length (`counted`) or on a line of its own. `id`: the request's; 0: it is not a request.
void outbox_put(struct outbox *outbox, struct blob *message, uint64_t id, bool counted);
enum outbox_status outbox_write(struct outbox *outbox, int fd);
// The id of the request at this index if nothing of it is written, so that it may be dropped; otherwise 0.
uint64_t outbox_unsent(const struct outbox *outbox, size_t at);
struct blob *outbox_text(const struct outbox *outbox, size_t at);  // a message of the queue
void outbox_drop(struct outbox *outbox, size_t at);

#endif
