// Audit rows that wait to be written: encoded as JSON, except for their place in the chain.
#ifndef STORE_AUDIT_BATCH_H
#define STORE_AUDIT_BATCH_H

#include "base/map.h"
#include "row.h"

struct audit_waiting {
    int64_t time_ms;
    enum audit_chain chain;
    size_t shared;   // index of its shared text
    size_t own_len;  // length of its own text
};

struct audit_batch {
    struct audit_waiting *at;
    size_t count, room;
    size_t of_chain[AUDIT_CHAINS];  // how many rows of each
    struct buf own;                 // texts of all rows, one after the other
    // The shared texts of the rows, each once: callers of a gateway repeat the same few operations.
    struct buf shared;   // texts
    size_t *shared_end;  // the end of each text
    size_t shared_count, shared_room;
    struct map known;  // the members of a shared text -> 1 + its index
    struct buf key, last_key;
};

void audit_batch_add(struct audit_batch *batch, const struct audit_record *record, int64_t time_ms);
struct span audit_batch_shared(const struct audit_batch *batch, size_t which);
size_t audit_batch_bytes(const struct audit_batch *batch);
void audit_batch_clear(struct audit_batch *batch);
void audit_batch_release(struct audit_batch *batch);

#endif
