// A segment of the audit: some hundred rows in one record of the database, with what they share beside them.
#ifndef STORE_AUDIT_SEGMENT_H
#define STORE_AUDIT_SEGMENT_H

#include "audit_batch.h"
#include "base/scan.h"

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

// ---- writing --------------------------------------------------------------------------------

// Turns the rows that a batch has of one chain into segments.
struct audit_draft {
    const struct audit_batch *batch;
    enum audit_chain chain;
    size_t left;       // rows of the chain
    size_t next, own;  // the batch's next row, and where its own text begins
    struct audit_draft_place {
        int64_t segment;  // by its first row: where `number` counts
        size_t number;
        char digest[AUDIT_HASH_CHARS + 1];
    } * places;  // of what rows of the batch share
    size_t place_room;
    struct buf rows, shared;    // of the segment in hand
    struct buf chained, whole;  // of the row in hand
    size_t shared_count;
    char prev[AUDIT_HASH_CHARS + 1];
    int64_t stamped_ms;  // the time whose stamp this is: the next row is often of the same millisecond
    char stamp[AUDIT_ROW_STAMP_CHARS + 1];
};

void audit_draft_start(struct audit_draft *draft, const struct audit_batch *batch, enum audit_chain chain);
// Makes a segment of the next rows, numbered after *seq and chained after the hash `head`, and moves both; it is valid until the next
// call. `lines`, if not NULL, gets the rows as JSON lines. False: there are no more.
bool audit_draft_next(struct audit_draft *draft, int64_t *seq, char head[AUDIT_HASH_CHARS + 1], struct buf *lines,
                      struct audit_segment *segment);
void audit_draft_release(struct audit_draft *draft);

// ---- reading --------------------------------------------------------------------------------

// A row as it is kept, taken apart: raw JSON.
struct audit_parts {
    struct span place;  // up to its time
    struct span seq, time;
    uint64_t shared;
    struct span own;  // all of it, from its first comma
    struct span fields[AUDIT_ROW_OWN];
    struct span hash;
};

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
