// The way of opening a database that only the records use.
#ifndef DB_H
#define DB_H

#include "store/db.h"

// Opens a copy of the file in memory, which may be changed. The file is only read, and may be in a place that cannot be
// written to.
bool db_open_copy(struct db *db, const struct db_kind *kind, char *path, struct err *err) MUST_CHECK;

#endif
