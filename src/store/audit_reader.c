// Owns reading the audit: a filter as SQL, rows in order, and going on where it ended.
//
// It reads in passes, each up to the newest row there is when it begins, and holds no lock between them, so that the
// writer's log can be folded back into the file however long somebody follows.
#include "audit_db.h"
#include "audit_schema.h"
#include "base/mem.h"
#include <inttypes.h>
#include <stdlib.h>

struct audit_reader {
    sqlite3 *sqlite;
    sqlite3_stmt *select;  // NULL: between passes
    char *path;
    const struct audit_filter *filter;
    int64_t from, to;  // this pass; the next one begins after `to`
    bool again;        // not the first pass any more
    struct buf json;
};

struct audit_reader *audit_reader_open(const char *path, const struct audit_filter *filter, struct err *err)
{
    sqlite3 *sqlite = audit_db_open_to_read(path, err);
    if (!sqlite)
        return NULL;
    struct audit_reader *reader = mem_new(struct audit_reader);
    reader->sqlite = sqlite;
    reader->path = mem_string(path);
    reader->filter = filter;
    return reader;
}

void audit_reader_close(struct audit_reader *reader)
{
    if (!reader)
        return;
    sqlite3_finalize(reader->select);
    sqlite3_close(reader->sqlite);
    buf_release(&reader->json);
    free(reader->path);
    free(reader);
}

static bool number(struct audit_reader *reader, const char *sql, const char *text, int64_t *out, struct err *err)
{
    sqlite3_stmt *select = NULL;
    if (sqlite3_prepare_v2(reader->sqlite, sql, -1, &select, NULL) != SQLITE_OK)
        return audit_db_fail(reader->sqlite, reader->path, err);
    if (text)
        sqlite3_bind_text(select, 1, text, -1, SQLITE_TRANSIENT);
    bool ok = sqlite3_step(select) == SQLITE_ROW || audit_db_fail(reader->sqlite, reader->path, err);
    *out = ok ? sqlite3_column_int64(select, 0) : 0;
    sqlite3_finalize(select);
    return ok;
}

// The first pass begins at the first row that is young enough: the index tells. (Wall clocks may go back, so each row
// is asked as well.)
static bool find_bounds(struct audit_reader *reader, struct err *err)
{
    char stamp[AUDIT_ROW_STAMP_CHARS + 1];
    reader->from = reader->to + 1;
    if (!number(reader, "SELECT max(\"seq\") FROM audit", NULL, &reader->to, err))
        return false;
    if (reader->to < reader->from - 1)
        reader->to = reader->from - 1;
    if (reader->again || !reader->filter->since_ms)
        return true;
    audit_row_stamp(reader->filter->since_ms, stamp);
    if (!number(reader, "SELECT min(\"seq\") FROM audit WHERE \"time\">=?", stamp, &reader->from, err))
        return false;
    if (reader->from == 0)
        reader->from = reader->to + 1;
    return true;
}

static void put_conditions(const struct audit_filter *filter, struct buf *sql)
{
    buf_put_text(sql, " FROM audit WHERE \"seq\">=?1 AND \"seq\"<=?2");
    if (filter->since_ms)
        buf_put_text(sql, " AND +\"time\">=?3");
    if (filter->until_ms)
        buf_put_text(sql, " AND +\"time\"<?4");
    if (filter->subject)
        buf_put_text(sql, " AND \"subject\"=?5");
    if (filter->tenant)
        buf_put_text(sql, " AND \"tenant\"=?6");
    if (filter->server)
        buf_put_text(sql, " AND \"server\"=?7");
    if (filter->name)
        buf_put_text(sql, " AND \"name\"=?8");
    if (filter->denied)
        buf_put_text(sql, " AND (\"decision\"='deny' OR \"status\"='denied')");
    buf_put_text(sql, " ORDER BY \"seq\"");
}

// The columns are asked for with each pass: a writer may have added some meanwhile.
static bool put_select(const struct audit_reader *reader, struct buf *sql, struct err *err)
{
    bool last = !reader->again && reader->filter->limit > 0;
    buf_put_text(sql, last ? "SELECT * FROM (SELECT " : "SELECT ");
    if (!audit_schema_columns(reader->sqlite, reader->path, sql, err))
        return false;
    put_conditions(reader->filter, sql);
    if (last)
        buf_printf(sql, " DESC LIMIT %" PRId64 ") ORDER BY \"seq\"", reader->filter->limit);
    return true;
}

static void bind(sqlite3_stmt *select, int at, const char *text)
{
    if (text && at <= sqlite3_bind_parameter_count(select))
        sqlite3_bind_text(select, at, text, -1, SQLITE_TRANSIENT);
}

static bool start_pass(struct audit_reader *reader, struct err *err)
{
    const struct audit_filter *filter = reader->filter;
    char since[AUDIT_ROW_STAMP_CHARS + 1], until[AUDIT_ROW_STAMP_CHARS + 1];
    struct buf sql = {0};
    if (!find_bounds(reader, err))
        return false;
    bool ok = put_select(reader, &sql, err);
    if (ok && sqlite3_prepare_v2(reader->sqlite, buf_text(&sql), -1, &reader->select, NULL) != SQLITE_OK)
        ok = audit_db_fail(reader->sqlite, reader->path, err);
    buf_release(&sql);
    if (!ok)
        return false;
    audit_row_stamp(filter->since_ms, since);
    audit_row_stamp(filter->until_ms, until);
    sqlite3_bind_int64(reader->select, 1, reader->from);
    sqlite3_bind_int64(reader->select, 2, reader->to);
    bind(reader->select, 3, since);
    bind(reader->select, 4, until);
    bind(reader->select, 5, filter->subject);
    bind(reader->select, 6, filter->tenant);
    bind(reader->select, 7, filter->server);
    bind(reader->select, 8, filter->name);
    reader->again = true;
    return true;
}

enum audit_next audit_reader_next(struct audit_reader *reader, struct audit_row *row, struct err *err)
{
    if (!reader->select && !start_pass(reader, err))
        return AUDIT_READ_FAILED;
    int got = sqlite3_step(reader->select);
    if (got == SQLITE_ROW) {
        (void)audit_db_row(reader->select, row);  // verify is who tells about odd rows
        buf_clear(&reader->json);
        audit_row_json(row, &reader->json);
        row->json = buf_span(&reader->json);
        return AUDIT_READ_ROW;
    }
    if (got != SQLITE_DONE)
        (void)audit_db_fail(reader->sqlite, reader->path, err);
    sqlite3_finalize(reader->select);
    reader->select = NULL;
    return got == SQLITE_DONE ? AUDIT_READ_END : AUDIT_READ_FAILED;
}

static struct span column(sqlite3_stmt *select, int i)
{
    return span_make((const char *)sqlite3_column_text(select, i), (size_t)sqlite3_column_bytes(select, i));
}

bool audit_last_uses(const char *path, void (*on_token)(void *arg, struct span token, struct span time), void *arg,
                     struct err *err)
{
    sqlite3_stmt *select = NULL;
    sqlite3 *sqlite = audit_db_open_to_read(path, err);
    if (!sqlite)
        return false;
    int got =
        sqlite3_prepare_v2(sqlite,
                           "SELECT \"token\",max(\"time\") FROM audit WHERE \"event\"='call' AND \"token\" IS NOT "
                           "NULL GROUP BY \"token\"",
                           -1, &select, NULL);
    while (got == SQLITE_OK || got == SQLITE_ROW)
        if ((got = sqlite3_step(select)) == SQLITE_ROW)
            on_token(arg, column(select, 0), column(select, 1));
    bool ok = got == SQLITE_DONE || audit_db_fail(sqlite, path, err);
    sqlite3_finalize(select);
    sqlite3_close(sqlite);
    return ok;
}
