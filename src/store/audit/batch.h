// Audit rows that wait to be written: JSON already, all but their place in the chain.
#ifndef STORE_AUDIT_BATCH_H
#define STORE_AUDIT_BATCH_H

#include "base/map.h"
#include "row.h"

struct audit_waiting {
    int64_t time_ms;
    enum audit_chain chain;
    size_t shared;   // which of the batch's
    size_t own_len;  // of its own text
};

struct audit_batch {
    struct audit_waiting *at;
    size_t count, room;
    size_t of_chain[AUDIT_CHAINS];  // how many rows of each
    struct buf own;                 // texts of all rows, one after the other
    // What rows share, each once: the callers of a gateway do the same few things all the time.
    struct buf shared;   // texts
    size_t *shared_end;  // of each
    size_t shared_count, shared_room;
    struct map known;  // by what they say: 1 + which
    struct buf key, last_key;
};

void audit_batch_add(struct audit_batch *batch, const struct audit_record *record, int64_t time_ms);
struct span audit_batch_shared(const struct audit_batch *batch, size_t which);
size_t audit_batch_bytes(const struct audit_batch *batch);
void audit_batch_clear(struct audit_batch *batch);
void audit_batch_release(struct audit_batch *batch);

#endif
