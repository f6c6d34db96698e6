// The tables of the audit database.
#ifndef STORE_AUDIT_SCHEMA_H
#define STORE_AUDIT_SCHEMA_H

#include "base/buf.h"
#include "base/err.h"
#include <sqlite3.h>

// Is this file ours, and can we read it? *is_new: it is empty.
bool audit_schema_check(sqlite3 *sqlite, const char *path, bool *is_new, struct err *err) MUST_CHECK;
bool audit_schema_make(sqlite3 *sqlite, const char *path, struct err *err) MUST_CHECK;
// Adds the columns that a database of an earlier version lacks.
bool audit_schema_upgrade(sqlite3 *sqlite, const char *path, struct err *err) MUST_CHECK;
// The columns as audit_db_row() wants them, for a SELECT; those that the table lacks are NULL.
bool audit_schema_columns(sqlite3 *sqlite, const char *path, struct buf *sql, struct err *err) MUST_CHECK;

#endif
