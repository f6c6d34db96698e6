// Owns the tables of the audit database: making them, bringing them up to date, and telling whether a file has them.
//
// Table `audit` has one row for each record. Table `anchor` has one row: the seq and prev of the first row kept, and seq
// and hash of the last one written, so that rows missing at either end are found. Both change in one transaction, and
// the writer reads the anchor in it, so that two processes may write to one file.
#include "audit_schema.h"
#include "audit_db.h"
#include <inttypes.h>

enum { APPLICATION = 0x506f7374, CHECKED_BYTES = 64 << 20 };

static bool is_sound(sqlite3 *sqlite, const char *path, struct err *err)
{
    struct buf said = {0};
    bool ok = audit_db_text(sqlite, path, "PRAGMA quick_check(1)", &said, err);
    if (ok && !span_is(buf_span(&said), "ok"))
        ok = err_set(err, ERR_CONFIG, "%s: the audit database is damaged (%.200s); move it away, and a new one is made",
                     path, buf_text(&said));
    buf_release(&said);
    return ok;
}

bool audit_schema_check(sqlite3 *sqlite, const char *path, bool *is_new, struct err *err)
{
    int64_t application, version, tables, pages, page_size;
    if (!audit_db_ask(sqlite, path, "SELECT count(*) FROM sqlite_schema", &tables, err) ||
        !audit_db_ask(sqlite, path, "PRAGMA application_id", &application, err) ||
        !audit_db_ask(sqlite, path, "PRAGMA user_version", &version, err) ||
        !audit_db_ask(sqlite, path, "PRAGMA page_count", &pages, err) ||
        !audit_db_ask(sqlite, path, "PRAGMA page_size", &page_size, err))
        return false;
    *is_new = tables == 0 && application == 0;
    if (*is_new)
        return true;
    if (application != APPLICATION)
        return err_set(err, ERR_CONFIG, "%s: a database of another program, not an audit database", path);
    if (version < 1 || version > AUDIT_ROW_VERSION)
        return err_set(err, ERR_CONFIG,
                       "%s: made by another version of postern (format %" PRId64 ", this one knows 1 to %d)", path,
                       version, AUDIT_ROW_VERSION);
    return pages * page_size > CHECKED_BYTES || is_sound(sqlite, path, err);
}

static bool make_tables(sqlite3 *sqlite, const char *path, struct err *err)
{
    struct buf sql = {0};
    buf_printf(&sql,
               "PRAGMA application_id=%d;PRAGMA user_version=%d;"
               "CREATE TABLE audit(\"seq\" INTEGER PRIMARY KEY,\"time\" TEXT NOT NULL",
               APPLICATION, AUDIT_ROW_VERSION);
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        buf_printf(&sql, ",\"%s\" %s", field->name,
                   field->type == AUDIT_ROW_TEXT || field->type == AUDIT_ROW_WORD ? "TEXT" : "INTEGER NOT NULL");
    buf_put_text(&sql, ",\"prev\" TEXT NOT NULL,\"hash\" TEXT NOT NULL) STRICT;"
                       "CREATE INDEX audit_time ON audit(\"time\");"
                       "CREATE TABLE anchor(id INTEGER PRIMARY KEY CHECK(id=1),first_seq INTEGER NOT NULL,"
                       "first_prev TEXT NOT NULL,head_seq INTEGER NOT NULL,head_hash TEXT NOT NULL) STRICT;"
                       "INSERT INTO anchor VALUES(1,1,'" AUDIT_ROW_ZERO "',0,'" AUDIT_ROW_ZERO "')");
    bool ok = audit_db_run(sqlite, path, buf_text(&sql), err);
    buf_release(&sql);
    return ok;
}

// Two processes may find the same empty file.
bool audit_schema_make(sqlite3 *sqlite, const char *path, struct err *err)
{
    bool is_new = false;
    if (!audit_db_run(sqlite, path, "BEGIN IMMEDIATE", err))
        return false;
    if (audit_schema_check(sqlite, path, &is_new, err) && (!is_new || make_tables(sqlite, path, err)) &&
        audit_db_run(sqlite, path, "COMMIT", err))
        return true;
    sqlite3_exec(sqlite, "ROLLBACK", NULL, NULL, NULL);
    return false;
}

static bool add_columns(sqlite3 *sqlite, const char *path, int64_t version, struct err *err)
{
    struct buf sql = {0};
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        if (field->since > version)
            buf_printf(&sql, "ALTER TABLE audit ADD COLUMN \"%s\" TEXT;", field->name);
    buf_printf(&sql, "PRAGMA user_version=%d", AUDIT_ROW_VERSION);
    bool ok = audit_db_run(sqlite, path, buf_text(&sql), err);
    buf_release(&sql);
    return ok;
}

bool audit_schema_upgrade(sqlite3 *sqlite, const char *path, struct err *err)
{
    int64_t version;
    if (!audit_db_ask(sqlite, path, "PRAGMA user_version", &version, err))
        return false;
    if (version == AUDIT_ROW_VERSION)
        return true;
    if (!audit_db_run(sqlite, path, "BEGIN IMMEDIATE", err))
        return false;
    if (audit_db_ask(sqlite, path, "PRAGMA user_version", &version, err) &&  // another process may have done it
        add_columns(sqlite, path, version, err) && audit_db_run(sqlite, path, "COMMIT", err))
        return true;
    sqlite3_exec(sqlite, "ROLLBACK", NULL, NULL, NULL);
    return false;
}

bool audit_schema_columns(sqlite3 *sqlite, const char *path, struct buf *sql, struct err *err)
{
    int64_t version;
    if (!audit_db_ask(sqlite, path, "PRAGMA user_version", &version, err))
        return false;
    buf_put_text(sql, "\"seq\",\"time\"");
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        buf_printf(sql, field->since > version ? ",NULL AS \"%s\"" : ",\"%s\"", field->name);
    buf_put_text(sql, ",\"prev\",\"hash\"");
    return true;
}
