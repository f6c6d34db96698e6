// The making of segments from the rows of a batch that belong to one chain.
#ifndef STORE_AUDIT_DRAFT_H
#define STORE_AUDIT_DRAFT_H

#include "batch.h"
#include "segment.h"

struct audit_draft {
    const struct audit_batch *batch;
    enum audit_chain chain;
    size_t left;       // rows of the chain that are left
    size_t next, own;  // the batch's next row, and where its own text begins
    struct audit_draft_place {
        int64_t segment;  // first row of the segment that `number` belongs to
        size_t number;
        char digest[AUDIT_HASH_CHARS + 1];
    } * places;  // of the batch's shared texts
    size_t place_room;
    struct buf rows, shared;    // of the current segment
    struct buf chained, whole;  // of the current row
    size_t shared_count;
    char prev[AUDIT_HASH_CHARS + 1];
    int64_t stamped_ms;  // the time of `stamp`: the next row often has the same millisecond
    char stamp[AUDIT_ROW_STAMP_CHARS + 1];
};

void audit_draft_start(struct audit_draft *draft, const struct audit_batch *batch, enum audit_chain chain);
// Makes a segment of the next rows, numbered after *seq and chained after the hash `head`, and advances both. The segment is
// valid until the next call. `lines`, if not NULL, gets the rows as JSON lines. False: all rows are done.
bool audit_draft_next(struct audit_draft *draft, int64_t *seq, char head[AUDIT_HASH_CHARS + 1], struct buf *lines,
                      struct audit_segment *segment);
void audit_draft_release(struct audit_draft *draft);

#endif
