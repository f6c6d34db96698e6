// A segment of the audit: some hundred rows in one record of the database, with what they share beside them.
#ifndef STORE_AUDIT_SEGMENT_H
#define STORE_AUDIT_SEGMENT_H

#include "row.h"

// Of a row that is kept: `seq`, `time` and `shared`, its own, `hash`.
enum { AUDIT_BEFORE_OWN = 3, AUDIT_ELEMENTS = AUDIT_BEFORE_OWN + AUDIT_ROW_OWN + 1 };

struct audit_segment {
    int64_t first, last;         // seq of its rows, which have no gap
    enum audit_chain chain;      // of all its rows
    int64_t since_ms, until_ms;  // of the oldest and the newest
    struct span prev;            // the hash before its first row
    struct span shared;          // a JSON array of objects
    struct span rows;            // a JSON array
};

// A row as it is kept, taken apart: raw JSON.
struct audit_parts {
    struct span place;  // up to its time
    struct span seq, time;
    uint64_t shared;
    struct span own;  // all of it, from its first comma
    struct span fields[AUDIT_ROW_OWN];
    struct span hash;
};

// Takes a kept row apart: valid JSON, whatever it says. False: it is not a row.
bool audit_segment_split(struct span kept, struct audit_parts *parts);
// Appends it as an object. `shared` begins with its comma.
void audit_segment_put_row(const struct audit_parts *parts, struct span shared, struct buf *out);

#endif
