// Owns the audit's SQLite file: its tables, the writing transaction, and retention.
//
// Table `segment` has the rows, several hundred of one chain in each record, as they were gathered (draft.c). One record for
// each row would make writing many times more expensive. The view `audit` has the single rows, for use with sqlite3. Table
// `anchor` has a record for each chain: seq and prev of the first row kept, and seq and hash of the last one written, so that
// rows missing at either end are found. Both tables change in one transaction, and the writer reads the anchors in it, so that
// two processes may write to one file. Rows of all chains share one sequence of numbers, `seq`.
//
// Retention deletes the oldest segments of a chain because of that chain's age and size alone: a flood of one kind of row
// does not delete rows of another kind (tests/unit/store/audit/audit_test.c). It adds a row to the chain that states the first
// row left; audit_verify() compares the anchor with it.
//
// WAL with synchronous NORMAL: a crash of the process loses no transaction. A loss of power may lose the last ones, but
// leaves a chain that verifies. This holds with `required`, too: FULL would make every answer wait for the disk.
#include "db.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/state.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BUSY_STEP_MS = 10, BUSY_STEPS = 500 };
enum { PAGE_BYTES = 16384, SEGMENT_COST = 192 };  // overhead of a segment: its numbers, its hash and its index entry

// To 6: rows may have the event `operation`, which version 5 would report as a changed row.
static const struct db_migration migrations[] = {{5, ""}, {0}};

// Pages of 16 KiB: a segment needs fewer of them, and each page is a system call and a frame of the log.
static const struct db_kind kind = {
    .what = "an audit database",
    .if_lost = "move it away, and a new one will be created",
    .application = 0x506f7374,
    .version = 6,
    .readable = 5,
    .migrations = migrations,
    .open = true,
    .fresh = "PRAGMA page_size=16384;PRAGMA auto_vacuum=INCREMENTAL",
    .settings = "PRAGMA cache_size=-256;PRAGMA wal_autocheckpoint=1000;PRAGMA journal_size_limit=67108864",
    .tables =
        "CREATE TABLE segment(seq INTEGER PRIMARY KEY,last INTEGER NOT NULL,chain INTEGER NOT NULL,"
        "since INTEGER NOT NULL,until INTEGER NOT NULL,bytes INTEGER NOT NULL,prev TEXT NOT NULL,"
        "shared TEXT NOT NULL,rows TEXT NOT NULL) STRICT;"
        "CREATE INDEX segment_chain ON segment(chain,seq,last,until,bytes);"
        "CREATE TABLE anchor(chain INTEGER PRIMARY KEY,first_seq INTEGER NOT NULL,first_prev TEXT NOT NULL,"
        "head_seq INTEGER NOT NULL,head_hash TEXT NOT NULL,bytes INTEGER NOT NULL) STRICT;"
        "INSERT INTO anchor SELECT value,1,'" AUDIT_ROW_ZERO "',0,'" AUDIT_ROW_ZERO "',0 FROM json_each('[0,1,2]')",
};

#define READ_ANCHORS                                        \
    "SELECT first_seq,first_prev,head_seq,head_hash,bytes," \
    "(SELECT last FROM segment ORDER BY seq DESC LIMIT 1) FROM anchor ORDER BY chain"
#define MOVE_ANCHOR "UPDATE anchor SET first_seq=?1,first_prev=?2,head_seq=?3,head_hash=?4,bytes=?5 WHERE chain=?6"
#define OLDEST "SELECT seq,last,until,bytes,prev FROM segment WHERE chain=?1 AND seq>=?2 ORDER BY seq"

// ---- opening --------------------------------------------------------------------------------

static int on_busy(void *arg, int times)
{
    struct audit_db *db = arg;
    if (times >= BUSY_STEPS || atomic_load(&db->hurry))
        return 0;
    nanosleep(&(struct timespec){.tv_nsec = BUSY_STEP_MS * 1000000L}, NULL);
    return 1;
}

// The single rows, with their members as columns.
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
    struct audit_anchors anchors = {0};
    sqlite3_busy_handler(db->db.sqlite, on_busy, db);
    if (config->page_limit)
        snprintf(limit, sizeof limit, "PRAGMA max_page_count=%" PRId64, config->page_limit);
    return db_run(&db->db, "PRAGMA synchronous=NORMAL", err) && make_view(db, err) && db_run(&db->db, limit, err) &&
           audit_db_anchors(&db->db, &anchors, err) && (db->anchors = db_prepare(&db->db, READ_ANCHORS, err)) &&
           (db->move = db_prepare(&db->db, MOVE_ANCHOR, err)) && (db->oldest = db_prepare(&db->db, OLDEST, err)) &&
           (db->insert = db_prepare(
                &db->db, "INSERT INTO segment(" AUDIT_SEGMENT_COLUMNS ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)", err));
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
    sqlite3_finalize(db->anchors);
    sqlite3_finalize(db->move);
    sqlite3_finalize(db->insert);
    sqlite3_finalize(db->oldest);
    db->anchors = db->move = db->insert = db->oldest = NULL;
    db_close(&db->db);
    audit_draft_release(&db->draft);
}

bool audit_db_open_to_read(struct db *db, const char *path, struct err *err)
{
    return db_open_to_read(db, &kind, mem_string(path), err);
}

// ---- the anchors ----------------------------------------------------------------------------

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

static bool read_anchors(struct db *db, sqlite3_stmt *select, struct audit_anchors *anchors, struct err *err)
{
    size_t count = 0;
    int got;
    anchors->last_seq = 0;
    for (; (got = sqlite3_step(select)) == SQLITE_ROW && count < AUDIT_CHAINS; count++) {
        struct audit_anchor *anchor = &anchors->of[count];
        anchor->first_seq = sqlite3_column_int64(select, 0);
        anchor->head_seq = sqlite3_column_int64(select, 2);
        anchor->bytes = sqlite3_column_int64(select, 4);
        if (!take_hash(column(select, 1), anchor->first_prev) || !take_hash(column(select, 3), anchor->head_hash))
            break;
        // Rows after the heads are foreign. The chains continue after them, and audit_verify() reports them.
        int64_t last = sqlite3_column_int64(select, 5);
        last = last > anchor->head_seq ? last : anchor->head_seq;
        anchors->last_seq = last > anchors->last_seq ? last : anchors->last_seq;
    }
    bool ok = got == SQLITE_DONE && count == AUDIT_CHAINS;
    if (!ok && (got == SQLITE_ROW || got == SQLITE_DONE))
        (void)err_set(err, ERR_CONFIG, "%s: an anchor of the audit database is missing or invalid; move the file away",
                      db->path);
    else if (!ok)
        (void)db_fail(db, err);
    sqlite3_reset(select);
    return ok;
}

bool audit_db_anchors(struct db *db, struct audit_anchors *anchors, struct err *err)
{
    sqlite3_stmt *select = db_prepare(db, READ_ANCHORS, err);
    bool ok = select && read_anchors(db, select, anchors, err);
    sqlite3_finalize(select);
    return ok;
}

static void bind_hash(sqlite3_stmt *statement, int at, const char *hash)
{
    sqlite3_bind_text(statement, at, hash, AUDIT_HASH_CHARS, SQLITE_STATIC);
}

static bool move_anchor(struct audit_db *db, enum audit_chain chain, const struct audit_anchor *anchor, struct err *err)
{
    sqlite3_bind_int64(db->move, 1, anchor->first_seq);
    bind_hash(db->move, 2, anchor->first_prev);
    sqlite3_bind_int64(db->move, 3, anchor->head_seq);
    bind_hash(db->move, 4, anchor->head_hash);
    sqlite3_bind_int64(db->move, 5, anchor->bytes);
    sqlite3_bind_int(db->move, 6, (int)chain);
    bool ok = sqlite3_step(db->move) == SQLITE_DONE || db_fail(&db->db, err);
    sqlite3_reset(db->move);
    return ok;
}

void audit_db_segment(sqlite3_stmt *select, struct audit_segment *segment)
{
    int64_t chain = sqlite3_column_int64(select, 2);
    *segment = (struct audit_segment){.first = sqlite3_column_int64(select, 0),
                                      .last = sqlite3_column_int64(select, 1),
                                      .chain = chain >= 0 && chain < AUDIT_CHAINS ? (enum audit_chain)chain : 0,
                                      .since_ms = sqlite3_column_int64(select, 3),
                                      .until_ms = sqlite3_column_int64(select, 4),
                                      .prev = column(select, 6),
                                      .shared = column(select, 7),
                                      .rows = column(select, 8)};
}

// ---- writing --------------------------------------------------------------------------------

// The approximate size of a segment in the file: content that does not fit into a page gets pages of its own.
static int64_t size_of(const struct audit_segment *segment)
{
    int64_t bytes = (int64_t)(segment->shared.len + segment->rows.len) + SEGMENT_COST;
    return bytes <= PAGE_BYTES ? bytes : (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static bool insert(struct audit_db *db, const struct audit_segment *segment, struct err *err)
{
    const int64_t numbers[] = {segment->first,    segment->last,     (int64_t)segment->chain,
                               segment->since_ms, segment->until_ms, size_of(segment)};
    const struct span texts[] = {segment->prev, segment->shared, segment->rows};
    for (int i = 0; i < 6; i++)
        sqlite3_bind_int64(db->insert, i + 1, numbers[i]);
    for (int i = 0; i < 3; i++)
        sqlite3_bind_text(db->insert, i + 7, texts[i].at, (int)texts[i].len, SQLITE_STATIC);
    bool ok = sqlite3_step(db->insert) == SQLITE_DONE || db_fail(&db->db, err);
    sqlite3_reset(db->insert);
    return ok;
}

static bool add_chain(struct audit_db *db, struct audit_anchors *anchors, enum audit_chain chain,
                      const struct audit_batch *batch, struct buf *lines, struct err *err)
{
    struct audit_segment segment;
    struct audit_anchor *anchor = &anchors->of[chain];
    audit_draft_start(&db->draft, batch, chain);
    while (audit_draft_next(&db->draft, &anchors->last_seq, anchor->head_hash, lines, &segment)) {
        if (atomic_load(&db->hurry))
            return err_set(err, ERR_SYSTEM, "%s: shutting down before all records were written", db->db.path);
        if (!insert(db, &segment, err))
            return false;
        anchor->head_seq = segment.last;
        anchor->bytes += size_of(&segment);
    }
    return move_anchor(db, chain, anchor, err);
}

static bool add_all(struct audit_db *db, struct audit_anchors *anchors, const struct audit_batch *batch,
                    struct buf *lines, struct err *err)
{
    for (enum audit_chain chain = 0; chain < AUDIT_CHAINS; chain++)
        if (batch->of_chain[chain] && !add_chain(db, anchors, chain, batch, lines, err))
            return false;
    return true;
}

static bool start(struct audit_db *db, struct audit_anchors *anchors, struct err *err)
{
    return db_begin(&db->db, err) && read_anchors(&db->db, db->anchors, anchors, err);
}

static bool finish(struct audit_db *db, bool ok, struct err *err)
{
    if (ok)
        return db_commit(&db->db, err);
    db_rollback(&db->db);
    return false;
}

bool audit_db_write(struct audit_db *db, const struct audit_batch *batch, struct buf *lines, int64_t *last_seq,
                    struct err *err)
{
    struct audit_anchors anchors = {0};
    bool ok = start(db, &anchors, err) && add_all(db, &anchors, batch, lines, err);
    if (!finish(db, ok, err))
        return false;
    *last_seq = anchors.last_seq;
    return true;
}

// ---- retention ------------------------------------------------------------------------------

// The rows that are deleted of a chain: all before the row `first`.
struct cut {
    enum audit_chain chain;
    int64_t first, rows, bytes;
    const char *why;  // NULL: nothing is deleted
    char prev[AUDIT_HASH_CHARS + 1];
};

// Finds the oldest segments that are too old, or that exceed nine tenths of the size limit once it is reached. The last
// segment is deleted only for its age.
static bool find_cut(struct audit_db *db, const struct audit_anchor *anchor, const struct audit_db_limits *limits,
                     struct cut *cut, struct err *err)
{
    int64_t size = limits->size[cut->chain], keep = anchor->bytes > size ? size / 10 * 9 : size;
    int got;
    cut->first = anchor->head_seq + 1;
    memcpy(cut->prev, anchor->head_hash, sizeof cut->prev);
    sqlite3_bind_int(db->oldest, 1, (int)cut->chain);
    sqlite3_bind_int64(db->oldest, 2, anchor->first_seq);
    while ((got = sqlite3_step(db->oldest)) == SQLITE_ROW) {
        int64_t seq = sqlite3_column_int64(db->oldest, 0), last = sqlite3_column_int64(db->oldest, 1);
        bool old = limits->before_ms && sqlite3_column_int64(db->oldest, 2) < limits->before_ms;
        bool much = size && anchor->bytes - cut->bytes > keep && last < anchor->head_seq;
        if ((!old && !much) || cut->rows >= limits->rows) {
            cut->first = seq;
            if (!take_hash(column(db->oldest, 4), cut->prev))
                cut->why = NULL;  // foreign; audit_verify() reports it
            break;
        }
        cut->why = old ? "age" : "size";
        cut->rows += last - seq + 1;
        cut->bytes += sqlite3_column_int64(db->oldest, 3);
    }
    bool ok = got == SQLITE_ROW || got == SQLITE_DONE || db_fail(&db->db, err);
    sqlite3_reset(db->oldest);
    return ok;
}

static bool delete_cut(struct audit_db *db, struct audit_anchors *anchors, const struct cut *cut, struct buf *lines,
                       struct err *err)
{
    char sql[96];
    struct audit_anchor *anchor = &anchors->of[cut->chain];
    struct audit_batch batch = {0};
    snprintf(sql, sizeof sql, "DELETE FROM segment WHERE chain=%d AND seq<%" PRId64, (int)cut->chain, cut->first);
    memcpy(anchor->first_prev, cut->prev, sizeof anchor->first_prev);
    anchor->first_seq = cut->first;
    anchor->bytes -= cut->bytes;
    audit_batch_add(&batch,
                    &(struct audit_record){.event = AUDIT_RETENTION,
                                           .kind = span_of(audit_row_chain_text(cut->chain)),
                                           .status = AUDIT_OK,
                                           .reason = span_of(cut->why),
                                           .count = cut->rows,
                                           .first_seq = cut->first},
                    clock_wall_ms());
    bool ok = db_run(&db->db, sql, err) && add_all(db, anchors, &batch, lines, err);
    audit_batch_release(&batch);
    return ok;
}

// First checks without a lock: usually no limit is exceeded.
static bool trim_chain(struct audit_db *db, enum audit_chain chain, const struct audit_db_limits *limits,
                       struct buf *lines, int64_t *deleted, struct err *err)
{
    struct audit_anchors anchors = {0};
    struct cut look = {.chain = chain}, cut = {.chain = chain};
    struct audit_db_limits one = *limits;
    one.rows = 1;
    if (!audit_db_anchors(&db->db, &anchors, err) || !find_cut(db, &anchors.of[chain], &one, &look, err))
        return false;
    if (!look.why)
        return true;
    bool ok = start(db, &anchors, err) && find_cut(db, &anchors.of[chain], limits, &cut, err) &&
              (!cut.why || delete_cut(db, &anchors, &cut, lines, err));
    if (!finish(db, ok, err))
        return false;
    *deleted += cut.why ? cut.rows : 0;
    return true;
}

bool audit_db_trim(struct audit_db *db, const struct audit_db_limits *limits, struct buf *lines, int64_t *deleted,
                   struct err *err)
{
    *deleted = 0;
    for (enum audit_chain chain = 0; chain < AUDIT_CHAINS; chain++)
        if (!trim_chain(db, chain, limits, lines, deleted, err))
            return false;
    return *deleted == 0 || db_run(&db->db, "PRAGMA incremental_vacuum", err);
}
