// The audit database: opening it, adding rows to the chains, deleting the oldest rows, and reading segments.
#ifndef STORE_AUDIT_DB_H
#define STORE_AUDIT_DB_H

#include "draft.h"
#include "store/db.h"
#include <stdatomic.h>

struct audit_db {
    struct db db;
    sqlite3_stmt *anchors, *move, *insert, *oldest;
    struct audit_draft draft;
    atomic_bool hurry;  // shutting down: do not wait for locks
};

// A row of the table `anchor`: where a chain begins and where it ends.
struct audit_anchor {
    int64_t first_seq;  // no row of the chain before this one is kept
    int64_t head_seq;   // its last row; 0: the chain is empty
    int64_t bytes;      // of its segments
    char first_prev[AUDIT_HASH_CHARS + 1], head_hash[AUDIT_HASH_CHARS + 1];
};

struct audit_anchors {
    struct audit_anchor of[AUDIT_CHAINS];
    int64_t last_seq;  // of all rows
};

struct audit_db_limits {
    int64_t before_ms;           // rows older than this are deleted; 0: none
    int64_t size[AUDIT_CHAINS];  // in bytes; 0: unlimited
    int64_t rows;                // rows deleted of a chain at once, at most
};

// Opens or creates the file, for writing.
bool audit_db_open(struct audit_db *db, const struct audit_config *config, struct err *err) MUST_CHECK;
void audit_db_close(struct audit_db *db);
// Adds the rows in one transaction: all of them or none. `lines`, if not NULL, gets them as JSON lines.
bool audit_db_write(struct audit_db *db, const struct audit_batch *batch, struct buf *lines, int64_t *last_seq,
                    struct err *err) MUST_CHECK;
// Deletes some of the oldest segments of each chain over its limits; *deleted: how many rows, 0: no chain is over its limits.
bool audit_db_trim(struct audit_db *db, const struct audit_db_limits *limits, struct buf *lines, int64_t *deleted,
                   struct err *err) MUST_CHECK;

// ---- reading --------------------------------------------------------------------------------

bool audit_db_open_to_read(struct db *db, const char *path, struct err *err) MUST_CHECK;
bool audit_db_anchors(struct db *db, struct audit_anchors *anchors, struct err *err) MUST_CHECK;

// The columns of a segment, in the order of audit_db_segment(); the spans are valid until the next step of the SELECT.
#define AUDIT_SEGMENT_COLUMNS "seq,last,chain,since,until,bytes,prev,shared,rows"
void audit_db_segment(sqlite3_stmt *select, struct audit_segment *segment);

#endif
