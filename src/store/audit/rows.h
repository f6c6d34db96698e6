// The rows of a segment, read one by one.
#ifndef STORE_AUDIT_ROWS_H
#define STORE_AUDIT_ROWS_H

#include "base/scan.h"
#include "segment.h"

struct audit_rows {
    struct span *shared;  // objects; empty: it is none, or has no members
    size_t shared_count, shared_room;
    struct scan_walk walk;
    struct audit_parts parts;  // of the row in hand
    struct buf members, whole, chained;
};

// Takes the segment apart; its texts have to stay. False: it is no list of rows, and has none.
bool audit_rows_open(struct audit_rows *rows, const struct audit_segment *segment);
// The next row; an empty one stands for something that is none. False: that was all.
bool audit_rows_next(struct audit_rows *rows, struct span *whole);
// The hash that the row in hand should have after `prev`; audit_row_read() has taken it.
void audit_rows_hash(struct audit_rows *rows, const char *prev, char hash[AUDIT_HASH_CHARS + 1]);
void audit_rows_release(struct audit_rows *rows);

#endif
