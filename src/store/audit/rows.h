// The rows of a segment, read one by one.
#ifndef STORE_AUDIT_ROWS_H
#define STORE_AUDIT_ROWS_H

#include "base/scan.h"
#include "segment.h"

struct audit_rows {
    struct span *shared;  // objects; an empty span is not an object, or has no members
    size_t shared_count, shared_room;
    struct scan_walk walk;
    struct audit_parts parts;  // of the current row
    struct buf members, whole, chained;
};

// Splits the segment, whose texts must stay valid. False: it is not a list of rows, and counts as empty.
bool audit_rows_open(struct audit_rows *rows, const struct audit_segment *segment);
// The next row; an empty span stands for an invalid row. False: at the end.
bool audit_rows_next(struct audit_rows *rows, struct span *whole);
// The correct hash of the current row after `prev`. Call it after audit_row_read() accepted the row.
void audit_rows_hash(struct audit_rows *rows, const char *prev, char hash[AUDIT_HASH_CHARS + 1]);
void audit_rows_release(struct audit_rows *rows);

#endif
