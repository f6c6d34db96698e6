// The audit database: opening it, adding rows to the chain, deleting the oldest, reading a row back.
#ifndef STORE_AUDIT_DB_H
#define STORE_AUDIT_DB_H

#include "audit_row.h"
#include <sqlite3.h>
#include <stdatomic.h>

struct audit_db {
    sqlite3 *sqlite;
    sqlite3_stmt *insert;
    char *path;
    atomic_bool hurry;  // the end is near: do not wait for locks
};

// The one row of the table `anchor`: where the chain begins and where it ends.
struct audit_anchor {
    int64_t first_seq, head_seq;
    char first_prev[AUDIT_HASH_CHARS + 1], head_hash[AUDIT_HASH_CHARS + 1];
};

struct audit_db_limits {
    int64_t before_ms;  // rows older than this go; 0: none
    int64_t size;       // 0: any
    int64_t rows;       // at most so many at once
};

// Opens or makes the file, for writing.
bool audit_db_open(struct audit_db *db, const struct audit_config *config, struct err *err) MUST_CHECK;
void audit_db_close(struct audit_db *db);
// Adds the records in one transaction: all of them or none. `lines`, if not NULL, gets the rows as JSON lines.
bool audit_db_write(struct audit_db *db, struct audit_record *records, size_t count, struct buf *lines,
                    int64_t *last_seq, struct err *err) MUST_CHECK;
// Deletes the oldest rows over the limits, one chunk of them; *deleted says how many, 0: nothing is over.
bool audit_db_trim(struct audit_db *db, const struct audit_db_limits *limits, struct buf *lines, int64_t *deleted,
                   struct err *err) MUST_CHECK;

sqlite3 *audit_db_open_to_read(const char *path, struct err *err) MUST_CHECK;
bool audit_db_anchor(sqlite3 *sqlite, struct audit_anchor *anchor, struct err *err) MUST_CHECK;
// NULL, or what is wrong with the row: something in it that is never written.
const char *audit_db_row(sqlite3_stmt *select, struct audit_row *row);
// What SQLite says, for people. False, as err_set().
bool audit_db_fail(sqlite3 *sqlite, const char *path, struct err *err);
bool audit_db_run(sqlite3 *sqlite, const char *path, const char *sql, struct err *err) MUST_CHECK;
// The first column of the rows, as text or, of one row, as a number.
bool audit_db_text(sqlite3 *sqlite, const char *path, const char *sql, struct buf *text, struct err *err) MUST_CHECK;
bool audit_db_ask(sqlite3 *sqlite, const char *path, const char *sql, int64_t *number, struct err *err) MUST_CHECK;

#endif
