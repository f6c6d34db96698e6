// Functions for databases that only the files of this room use.
#ifndef DB_H
#define DB_H

#include "store/db.h"

// Opens a copy of the file in memory, which may be changed. The file is only read, and may be in a place that cannot be
// written to.
bool db_open_copy(struct db *db, const struct db_kind *kind, char *path, struct err *err) MUST_CHECK;

// db_prepare() for an array of statements, which begins zeroed. After a failure, too, db_finalize_all() is to be called.
bool db_prepare_all(struct db *db, const char *const *sql, size_t count, sqlite3_stmt **out,
                    struct err *err) MUST_CHECK;
void db_finalize_all(sqlite3_stmt **statements, size_t count);
void db_bind_bytes(sqlite3_stmt *statement, int at, struct span bytes);  // not copied; an empty span is an empty blob
void db_set_waiting(struct db *db, bool waits);  // while another process writes, for up to 10 s; an open file does

#endif
