// Owns the audit's SQLite file: its tables, the writing transaction, and retention.
//
// Table `segment` has the rows, some hundred of them in each of its own, as they were gathered (audit_segment.c). One row
// in each would cost the writer many times as much. The view `audit` shows people with sqlite3 the single rows. Table
// `anchor` has one row: seq and prev of the first row kept, and seq and hash of the last one written, so that rows missing
// at either end are found. Both change in one transaction, and the writer reads the anchor in it, so that two processes
// may write to one file.
//
// A deletion by retention adds a row that says which row is the first now; audit_verify() holds the anchor against it.
//
// WAL with synchronous NORMAL: a crash of the process loses no transaction, a loss of power may lose the last ones and
// leaves a chain that verifies. With `required` it is FULL, and only what was queued is lost.
#include "audit_db.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/state.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BUSY_STEP_MS = 10, BUSY_STEPS = 500 };

// Pages of 16 KiB: a segment has fewer of them, and each is a call of the kernel's and a frame of the log.
static const struct db_kind kind = {
    .what = "an audit database",
    .if_lost = "move it away, and a new one is made",
    .application = 0x506f7374,
    .version = 4,
    .open = true,
    .fresh = "PRAGMA page_size=16384;PRAGMA auto_vacuum=INCREMENTAL",
    .settings = "PRAGMA cache_size=-256;PRAGMA wal_autocheckpoint=1000;PRAGMA journal_size_limit=67108864",
    .tables = "CREATE TABLE segment(seq INTEGER PRIMARY KEY,last INTEGER NOT NULL,since INTEGER NOT NULL,"
              "until INTEGER NOT NULL,prev TEXT NOT NULL,shared TEXT NOT NULL,rows TEXT NOT NULL) STRICT;"
              "CREATE TABLE anchor(id INTEGER PRIMARY KEY CHECK(id=1),first_seq INTEGER NOT NULL,"
              "first_prev TEXT NOT NULL,head_seq INTEGER NOT NULL,head_hash TEXT NOT NULL) STRICT;"
              "INSERT INTO anchor VALUES(1,1,'" AUDIT_ROW_ZERO "',0,'" AUDIT_ROW_ZERO "')",
};

#define READ_ANCHOR \
    "SELECT first_seq,first_prev,head_seq,head_hash,(SELECT last FROM segment ORDER BY seq DESC LIMIT 1) FROM anchor"
#define MOVE_ANCHOR "UPDATE anchor SET first_seq=?1,first_prev=?2,head_seq=?3,head_hash=?4 WHERE id=1"

// ---- opening --------------------------------------------------------------------------------

static int on_busy(void *arg, int times)
{
    struct audit_db *db = arg;
    if (times >= BUSY_STEPS || atomic_load(&db->hurry))
        return 0;
    nanosleep(&(struct timespec){.tv_nsec = BUSY_STEP_MS * 1000000L}, NULL);
    return 1;
}

// The rows one by one, with their members as columns.
static bool make_view(struct audit_db *db, struct err *err)
{
    struct buf sql = {0};
    buf_put_text(&sql, "CREATE VIEW IF NOT EXISTS audit AS SELECT row.value->>0 AS seq,row.value->>1 AS time");
    for (size_t i = 0; audit_row_fields[i].key; i++) {
        struct span name = audit_row_name(&audit_row_fields[i]);
        if (i < AUDIT_ROW_SHARED)
            buf_printf(&sql, ",shared->(row.value->>2)->>'%.*s'", SPAN_ARG(name));
        else
            buf_printf(&sql, ",row.value->>%zu", i - AUDIT_ROW_SHARED + AUDIT_BEFORE_OWN);
        buf_printf(&sql, " AS \"%.*s\"", SPAN_ARG(name));
    }
    buf_printf(&sql, ",row.value->>%d AS hash FROM segment,json_each(segment.rows) AS row",
               AUDIT_BEFORE_OWN + AUDIT_ROW_OWN);
    bool ok = db_run(&db->db, buf_text(&sql), err);
    buf_release(&sql);
    return ok;
}

static bool set_up(struct audit_db *db, const struct audit_config *config, struct err *err)
{
    char limit[64] = "";
    struct audit_anchor anchor = {0};
    sqlite3_busy_handler(db->db.sqlite, on_busy, db);
    if (config->page_limit)
        snprintf(limit, sizeof limit, "PRAGMA max_page_count=%" PRId64, config->page_limit);
    return db_run(&db->db, config->required ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err) &&
           make_view(db, err) && db_run(&db->db, limit, err) && audit_db_anchor(&db->db, &anchor, err) &&
           (db->anchor = db_prepare(&db->db, READ_ANCHOR, err)) && (db->move = db_prepare(&db->db, MOVE_ANCHOR, err)) &&
           (db->insert = db_prepare(
                &db->db, "INSERT INTO segment(" AUDIT_SEGMENT_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7)", err));
}

bool audit_db_open(struct audit_db *db, const struct audit_config *config, struct err *err)
{
    char *path = audit_path(config->path);
    if (!config->path)
        state_make_folders(path);
    if (db_open(&db->db, &kind, path, err) && set_up(db, config, err))
        return true;
    audit_db_close(db);
    return false;
}

void audit_db_close(struct audit_db *db)
{
    sqlite3_finalize(db->anchor);
    sqlite3_finalize(db->move);
    sqlite3_finalize(db->insert);
    db->anchor = db->move = db->insert = NULL;
    db_close(&db->db);
    audit_draft_release(&db->draft);
}

bool audit_db_open_to_read(struct db *db, const char *path, struct err *err)
{
    return db_open_to_read(db, &kind, mem_string(path), err);
}

// ---- the anchor -----------------------------------------------------------------------------

static struct span column(sqlite3_stmt *select, int at)
{
    const char *text = (const char *)sqlite3_column_text(select, at);
    return span_make(text ? text : "", text ? (size_t)sqlite3_column_bytes(select, at) : 0);
}

static bool take_hash(struct span text, char out[AUDIT_HASH_CHARS + 1])
{
    if (text.len != AUDIT_HASH_CHARS)
        return false;
    memcpy(out, text.at, AUDIT_HASH_CHARS);
    out[AUDIT_HASH_CHARS] = '\0';
    return true;
}

static bool read_anchor(struct db *db, sqlite3_stmt *select, struct audit_anchor *anchor, struct err *err)
{
    int got = sqlite3_step(select);
    bool ok = got == SQLITE_ROW && take_hash(column(select, 1), anchor->first_prev) &&
              take_hash(column(select, 3), anchor->head_hash);
    if (ok) {
        anchor->first_seq = sqlite3_column_int64(select, 0);
        anchor->head_seq = sqlite3_column_int64(select, 2);
        anchor->last_seq = sqlite3_column_int64(select, 4);
    } else if (got == SQLITE_ROW || got == SQLITE_DONE) {
        (void)err_set(err, ERR_CONFIG, "%s: the anchor of the audit database is missing or not one; move the file away",
                      db->path);
    } else {
        (void)db_fail(db, err);
    }
    sqlite3_reset(select);
    return ok;
}

bool audit_db_anchor(struct db *db, struct audit_anchor *anchor, struct err *err)
{
    sqlite3_stmt *select = db_prepare(db, READ_ANCHOR, err);
    bool ok = select && read_anchor(db, select, anchor, err);
    sqlite3_finalize(select);
    return ok;
}

static void bind_hash(sqlite3_stmt *statement, int at, const char *hash)
{
    sqlite3_bind_text(statement, at, hash, AUDIT_HASH_CHARS, SQLITE_STATIC);
}

static bool move_anchor(struct audit_db *db, const struct audit_anchor *anchor, struct err *err)
{
    sqlite3_bind_int64(db->move, 1, anchor->first_seq);
    bind_hash(db->move, 2, anchor->first_prev);
    sqlite3_bind_int64(db->move, 3, anchor->head_seq);
    bind_hash(db->move, 4, anchor->head_hash);
    bool ok = sqlite3_step(db->move) == SQLITE_DONE || db_fail(&db->db, err);
    sqlite3_reset(db->move);
    return ok;
}

void audit_db_segment(sqlite3_stmt *select, struct audit_segment *segment)
{
    *segment = (struct audit_segment){.first = sqlite3_column_int64(select, 0),
                                      .last = sqlite3_column_int64(select, 1),
                                      .since_ms = sqlite3_column_int64(select, 2),
                                      .until_ms = sqlite3_column_int64(select, 3),
                                      .prev = column(select, 4),
                                      .shared = column(select, 5),
                                      .rows = column(select, 6)};
}

// ---- writing --------------------------------------------------------------------------------

static bool insert(struct audit_db *db, const struct audit_segment *segment, struct err *err)
{
    const int64_t numbers[] = {segment->first, segment->last, segment->since_ms, segment->until_ms};
    const struct span texts[] = {segment->prev, segment->shared, segment->rows};
    for (int i = 0; i < 4; i++)
        sqlite3_bind_int64(db->insert, i + 1, numbers[i]);
    for (int i = 0; i < 3; i++)
        sqlite3_bind_text(db->insert, i + 5, texts[i].at, (int)texts[i].len, SQLITE_STATIC);
    bool ok = sqlite3_step(db->insert) == SQLITE_DONE || db_fail(&db->db, err);
    sqlite3_reset(db->insert);
    return ok;
}

static bool add_all(struct audit_db *db, struct audit_anchor *anchor, const struct audit_batch *batch,
                    struct buf *lines, struct err *err)
{
    struct audit_segment segment;
    audit_draft_start(&db->draft, batch);
    while (audit_draft_next(&db->draft, &anchor->head_seq, anchor->head_hash, lines, &segment)) {
        if (atomic_load(&db->hurry))
            return err_set(err, ERR_SYSTEM, "%s: there was no time left to write", db->db.path);
        if (!insert(db, &segment, err))
            return false;
    }
    return true;
}

// Rows behind the head are not ours; the chain goes on after them, and verify tells.
static bool start(struct audit_db *db, struct audit_anchor *anchor, struct err *err)
{
    if (!db_begin(&db->db, err) || !read_anchor(&db->db, db->anchor, anchor, err))
        return false;
    if (anchor->last_seq > anchor->head_seq)
        anchor->head_seq = anchor->last_seq;
    return true;
}

static bool finish(struct audit_db *db, const struct audit_anchor *anchor, bool ok, struct err *err)
{
    if (ok && move_anchor(db, anchor, err))
        return db_commit(&db->db, err);
    db_rollback(&db->db);
    return false;
}

bool audit_db_write(struct audit_db *db, const struct audit_batch *batch, struct buf *lines, int64_t *last_seq,
                    struct err *err)
{
    struct audit_anchor anchor = {0};
    bool ok = start(db, &anchor, err) && add_all(db, &anchor, batch, lines, err);
    if (!finish(db, &anchor, ok, err))
        return false;
    *last_seq = anchor.head_seq;
    return true;
}

// ---- retention ------------------------------------------------------------------------------

static bool ask(struct audit_db *db, int64_t *number, struct err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static bool ask(struct audit_db *db, int64_t *number, struct err *err, const char *format, ...)
{
    char sql[256];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    return db_ask(&db->db, sql, number, err);
}

// The first row to keep because of its age; only the oldest `rows` are looked at.
static bool cut_by_age(struct audit_db *db, const struct audit_anchor *anchor, const struct audit_db_limits *limits,
                       int64_t *cut, struct err *err)
{
    int64_t end = anchor->first_seq + limits->rows;
    if (!ask(db, cut, err, "SELECT min(seq) FROM segment WHERE seq<%" PRId64 " AND until>=%" PRId64, end,
             limits->before_ms))
        return false;
    if (*cut == 0 && !ask(db, cut, err, "SELECT min(seq) FROM segment WHERE seq>=%" PRId64, end))
        return false;
    if (*cut == 0)  // all of them are old
        *cut = anchor->head_seq + 1;
    return true;
}

// The first row to keep because of the size: to nine tenths of the limit, by the mean size of a row. The last segment
// stays.
static bool cut_by_size(struct audit_db *db, const struct audit_anchor *anchor, const struct audit_db_limits *limits,
                        int64_t *cut, struct err *err)
{
    int64_t pages, spare, page_size, last, rows = anchor->head_seq - anchor->first_seq + 1;
    if (!db_ask(&db->db, "PRAGMA page_count", &pages, err) || !db_ask(&db->db, "PRAGMA freelist_count", &spare, err) ||
        !db_ask(&db->db, "PRAGMA page_size", &page_size, err))
        return false;
    int64_t used = (pages - spare) * page_size;
    *cut = anchor->first_seq;
    if (used <= limits->size || rows < 1)
        return true;
    int64_t over = (used - limits->size / 10 * 9) / (used / rows + 1) + 1;
    if (over > limits->rows)
        over = limits->rows;
    if (!ask(db, cut, err, "SELECT min(seq) FROM segment WHERE seq>=%" PRId64, anchor->first_seq + over) ||
        !ask(db, &last, err, "SELECT max(seq) FROM segment"))
        return false;
    if (*cut == 0)
        *cut = last;
    return true;
}

static bool prev_of(struct audit_db *db, int64_t seq, char out[AUDIT_HASH_CHARS + 1], struct err *err)
{
    sqlite3_stmt *select = db_prepare(&db->db, "SELECT prev FROM segment WHERE seq=?1", err);
    if (!select)
        return false;
    sqlite3_bind_int64(select, 1, seq);
    bool ok = sqlite3_step(select) == SQLITE_ROW && take_hash(column(select, 0), out);
    sqlite3_finalize(select);
    return ok || err_set(err, ERR_SYSTEM, "%s: row %" PRId64 " of the audit cannot be read", db->db.path, seq);
}

static bool drop_before(struct audit_db *db, struct audit_anchor *anchor, int64_t cut, struct err *err)
{
    char sql[64];
    snprintf(sql, sizeof sql, "DELETE FROM segment WHERE seq<%" PRId64, cut);
    if (cut > anchor->head_seq)
        memcpy(anchor->first_prev, anchor->head_hash, sizeof anchor->first_prev);
    else if (!prev_of(db, cut, anchor->first_prev, err))
        return false;
    anchor->first_seq = cut;
    return db_run(&db->db, sql, err);
}

static bool trim(struct audit_db *db, struct audit_anchor *anchor, const struct audit_db_limits *limits,
                 struct buf *lines, int64_t *deleted, struct err *err)
{
    int64_t by_age = 0, by_size = 0, first = anchor->first_seq;
    if (limits->before_ms && !cut_by_age(db, anchor, limits, &by_age, err))
        return false;
    if (limits->size && !cut_by_size(db, anchor, limits, &by_size, err))
        return false;
    int64_t cut = by_age > by_size ? by_age : by_size;
    if (cut <= first)
        return true;
    if (!drop_before(db, anchor, cut, err))
        return false;
    *deleted = cut - first;
    struct audit_batch batch = {0};
    audit_batch_add(&batch,
                    &(struct audit_record){.event = AUDIT_RETENTION,
                                           .status = AUDIT_OK,
                                           .reason = span_of(by_age >= by_size ? "age" : "size"),
                                           .count = *deleted,
                                           .first_seq = cut},
                    clock_wall_ms());
    bool ok = add_all(db, anchor, &batch, lines, err);
    audit_batch_release(&batch);
    return ok;
}

// Is a look enough? Nothing is written when the oldest rows are young and the file small.
static bool over(struct audit_db *db, const struct audit_db_limits *limits, bool *yes, struct err *err)
{
    struct audit_anchor anchor = {0};
    int64_t by_age = 0, by_size = 0;
    *yes = false;
    if (!audit_db_anchor(&db->db, &anchor, err))
        return false;
    if (anchor.head_seq < anchor.first_seq)
        return true;
    if (limits->before_ms && !cut_by_age(db, &anchor, &(struct audit_db_limits){limits->before_ms, 0, 1}, &by_age, err))
        return false;
    if (limits->size && !cut_by_size(db, &anchor, limits, &by_size, err))
        return false;
    *yes = by_age > anchor.first_seq || by_size > anchor.first_seq;
    return true;
}

bool audit_db_trim(struct audit_db *db, const struct audit_db_limits *limits, struct buf *lines, int64_t *deleted,
                   struct err *err)
{
    struct audit_anchor anchor = {0};
    bool yes;
    *deleted = 0;
    if (!over(db, limits, &yes, err))
        return false;
    if (!yes)
        return true;
    bool ok = start(db, &anchor, err) && trim(db, &anchor, limits, lines, deleted, err);
    if (!finish(db, &anchor, ok, err)) {
        *deleted = 0;
        return false;
    }
    return db_run(&db->db, "PRAGMA incremental_vacuum", err);
}
