// A segment of the audit log: several hundred rows in one record of the database, with the members they share stored once.
#ifndef STORE_AUDIT_SEGMENT_H
#define STORE_AUDIT_SEGMENT_H

#include "row.h"

// The elements of a stored row: `seq`, `time` and `shared`, its own members, `hash`.
enum { AUDIT_BEFORE_OWN = 3, AUDIT_ELEMENTS = AUDIT_BEFORE_OWN + AUDIT_ROW_OWN + 1 };

struct audit_segment {
    int64_t first, last;         // seq of its rows, without gaps
    enum audit_chain chain;      // of all its rows
    int64_t since_ms, until_ms;  // times of the oldest and the newest row
    struct span prev;            // the hash before its first row
    struct span shared;          // a JSON array of objects
    struct span rows;            // a JSON array
};

// The parts of a stored row: raw JSON.
struct audit_parts {
    struct span place;  // the row up to its time
    struct span seq, time;
    uint64_t shared;
    struct span own;  // its own members, from the first comma
    struct span fields[AUDIT_ROW_OWN];
    struct span hash;
};

// Splits a stored row, which is valid JSON but may have any content. False: it is not a row.
bool audit_segment_split(struct span kept, struct audit_parts *parts);
// Appends the row as an object. `shared` begins with a comma.
void audit_segment_put_row(const struct audit_parts *parts, struct span shared, struct buf *out);

#endif
