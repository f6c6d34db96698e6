// A database as only the records open it.
#ifndef DB_H
#define DB_H

#include "store/db.h"

// A copy of such a file in memory, to change as one likes; the file is only read, and may be in a place that cannot be
// written to.
bool db_open_copy(struct db *db, const struct db_kind *kind, char *path, struct err *err) MUST_CHECK;

#endif
