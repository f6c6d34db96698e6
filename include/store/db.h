// SQLite files of Postern: opening or creating one with its tables, migrating an older version, refusing a foreign file, and
// error messages.
#ifndef STORE_DB_H
#define STORE_DB_H

#include "base/buf.h"
#include "base/err.h"
#include <sqlite3.h>

// One step of a migration: the SQL that turns a file of one version into a file of the next.
//
// The predecessor that a gateway replaces writes to the file until it has ended, so its statements must still work on the
// new tables: add, and remove only what the previous version no longer uses.
struct db_migration {
    int from;         // the version, PRAGMA user_version
    const char *sql;  // may be ""
};

// The properties of a kind of file.
struct db_kind {
    const char *what;                       // "a database of logins"
    const char *if_lost;                    // what to do if it is damaged
    int application;                        // PRAGMA application_id
    int version;                            // PRAGMA user_version
    int readable;                           // the oldest version that can be read without migrating it
    const struct db_migration *migrations;  // in order, up to `version`; ends with a row without SQL
    bool open;             // other users may have the permission to read it, and it may be in any folder
    const char *fresh;     // SQL, for an empty file; or NULL
    const char *settings;  // SQL, each time it is opened to write
    const char *tables;    // SQL, when the file is created
};

struct db {
    sqlite3 *sqlite;
    char *path;
    const struct db_kind *kind;
    bool damaged;  // the content of the file is, which is why something failed; known after db_close(), too
};

// Opens the file, or creates it with its tables. A file of an older version is migrated first, in one transaction. Unless its
// kind is open, the file must be accessible by its owner only, in a folder that other users cannot write to. It must be on a
// file system where processes can lock. `path` belongs to the database from now on, also if this fails.
bool db_open(struct db *db, const struct db_kind *kind, char *path, struct err *err) MUST_CHECK;
bool db_open_to_read(struct db *db, const struct db_kind *kind, char *path, struct err *err) MUST_CHECK;
void db_close(struct db *db);

bool db_run(struct db *db, const char *sql, struct err *err) MUST_CHECK;
bool db_ask(struct db *db, const char *sql, int64_t *number, struct err *err) MUST_CHECK;  // the first column
sqlite3_stmt *db_prepare(struct db *db, const char *sql, struct err *err) MUST_CHECK;      // for repeated use
bool db_begin(struct db *db, struct err *err) MUST_CHECK;   // a transaction that may write
bool db_commit(struct db *db, struct err *err) MUST_CHECK;  // if it fails, nothing has changed
void db_rollback(struct db *db);
// Sets the error from SQLite's error state. Returns false, like err_set().
bool db_fail(struct db *db, struct err *err);

#endif
