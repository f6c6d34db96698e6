// A blob is an immutable, counted text, so that one message can wait in many queues. Most blobs are one run of bytes; a
// large one may consist of parts of other blobs (base/pieces.h makes those). References may be taken and dropped on any
// thread.
#ifndef BASE_BLOB_H
#define BASE_BLOB_H

#include "base/budget.h"
#include "base/buf.h"
#include "base/span.h"

struct blob_part {
    struct span text;
    struct blob *owner;
};

struct blob {
    unsigned refs;
    size_t len;
    bool wiped;  // before its memory is freed
    char *at;    // NULL: the text is in parts
    struct blob_part *parts;
    size_t part_count;
    struct budget_hold *held;  // NULL: its bytes are not counted, or its users count them
};

struct blob *blob_take(struct buf *buf);  // takes the buffer's memory
struct blob *blob_ref(struct blob *blob);
void blob_unref(struct blob *blob);
// The blob takes over the bytes that are held for its text, until it is freed. Its last reference must then be dropped
// on the loop's thread.
void blob_hold(struct blob *blob, struct budget_hold *held, size_t bytes);
// Returns whether this is the only reference. If so, its hold is closed, and the reference may be dropped on any
// thread.
bool blob_let_go(struct blob *blob);
void blob_step_back(const struct blob *blob);  // gives up the reserves that it, or its parts, may use

// For a blob that is one run of bytes.
static inline struct span blob_span(const struct blob *blob) { return (struct span){blob->at, blob->len}; }

// For any blob, part by part.
static inline size_t blob_count(const struct blob *blob) { return blob->at ? 1 : blob->part_count; }
static inline struct span blob_part(const struct blob *blob, size_t i)
{
    return blob->at ? blob_span(blob) : blob->parts[i].text;
}

// Reads any blob from its beginning to its end.
struct blob_reader {
    const struct blob *blob;
    size_t part, offset;
};
struct span blob_rest(const struct blob_reader *reader);  // of the current part; empty at the end of the blob
void blob_skip(struct blob_reader *reader, size_t len);   // at most the length of that rest
size_t blob_read(struct blob_reader *reader, char *to, size_t room);  // 0: the end of the blob

#endif
