// A SQLite file of ours: opening or making it with its tables, migrating an older one, refusing a foreign one, and SQLite's
// errors in words.
#ifndef STORE_DB_H
#define STORE_DB_H

#include "base/buf.h"
#include "base/err.h"
#include <sqlite3.h>

// One step of bringing a file up to date: the SQL that makes a file of the next version of it.
//
// The predecessor that a gateway replaces writes to the file until it has ended, so its statements must still work on the
// new tables: add, and remove only what the previous version no longer uses.
struct db_migration {
    int from;         // the version, PRAGMA user_version
    const char *sql;  // may be ""
};

// What a file of this kind is.
struct db_kind {
    const char *what;                       // "a database of logins"
    const char *if_lost;                    // what to do about a damaged one
    int application;                        // PRAGMA application_id
    int version;                            // PRAGMA user_version
    int readable;                           // the oldest version that can be read without migrating it
    const struct db_migration *migrations;  // in order, up to `version`; ends with a row without SQL
    bool open;                              // others may be given the file to read, and it may be in any folder
    const char *fresh;                      // SQL, before anything is in it; or NULL
    const char *settings;                   // SQL, each time it is opened to write
    const char *tables;                     // SQL, once
};

struct db {
    sqlite3 *sqlite;
    char *path;
    const struct db_kind *kind;
    bool damaged;  // the content of the file is, which is why something failed; known after db_close(), too
};

// Opens the file, or makes it with its tables, for the owner. A file of an older version is migrated first, in one
// transaction. It must be the owner's alone, in a folder nobody else may write to, unless its kind is open; and on a file
// system where processes can lock. `path` is the database's from now on, also when this fails.
bool db_open(struct db *db, const struct db_kind *kind, char *path, struct err *err) MUST_CHECK;
bool db_open_to_read(struct db *db, const struct db_kind *kind, char *path, struct err *err) MUST_CHECK;
void db_close(struct db *db);

bool db_run(struct db *db, const char *sql, struct err *err) MUST_CHECK;
bool db_ask(struct db *db, const char *sql, int64_t *number, struct err *err) MUST_CHECK;  // the first column
sqlite3_stmt *db_prepare(struct db *db, const char *sql, struct err *err) MUST_CHECK;      // one that is kept
bool db_begin(struct db *db, struct err *err) MUST_CHECK;   // a transaction that may write
bool db_commit(struct db *db, struct err *err) MUST_CHECK;  // if it fails, nothing has changed
void db_rollback(struct db *db);
// What SQLite says, for people. False, as err_set().
bool db_fail(struct db *db, struct err *err);

#endif
