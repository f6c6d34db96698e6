// A blob is an immutable, counted run of bytes, so that one message can wait in many queues.
#ifndef BASE_BLOB_H
#define BASE_BLOB_H

#include "base/buf.h"
#include "base/span.h"

struct blob {
    unsigned refs;
    size_t len;
    char *at;
};

struct blob *blob_take(struct buf *buf);  // takes the buffer's memory
struct blob *blob_copy(struct span bytes);
struct blob *blob_ref(struct blob *blob);
void blob_unref(struct blob *blob);

static inline struct span blob_span(const struct blob *blob) { return (struct span){blob->at, blob->len}; }

#endif
