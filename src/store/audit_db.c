// Owns the audit's SQLite file: opening it, the writing transaction, retention, and reading rows back.
//
// A deletion by retention adds a row that says which row is the first now; audit_verify() holds the anchor against it.
//
// WAL with synchronous NORMAL: a crash of the process loses no transaction, a loss of power may lose the last ones and
// leaves a chain that verifies. With `required` it is FULL, and only what was queued is lost.
#include "audit_db.h"
#include "audit_schema.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUSY_STEP_MS = 10, BUSY_STEPS = 500 };

bool audit_db_fail(sqlite3 *sqlite, const char *path, struct err *err)
{
    int code = sqlite ? sqlite3_errcode(sqlite) : SQLITE_NOMEM;
    const char *said = sqlite ? sqlite3_errmsg(sqlite) : "out of memory";
    switch (code & 0xFF) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return err_set(err, ERR_CONFIG,
                       "%s: not an audit database, or a damaged one (%s); move it away, and a new one is made", path,
                       said);
    case SQLITE_FULL: return err_set(err, ERR_SYSTEM, "%s: no room left (%s)", path, said);
    case SQLITE_CANTOPEN:
        return err_set(err, ERR_CONFIG, "%s: cannot be opened (%s)", path, strerror(sqlite3_system_errno(sqlite)));
    default: return err_set(err, ERR_SYSTEM, "%s: %s", path, said);
    }
}

bool audit_db_run(sqlite3 *sqlite, const char *path, const char *sql, struct err *err)
{
    return sqlite3_exec(sqlite, sql, NULL, NULL, NULL) == SQLITE_OK || audit_db_fail(sqlite, path, err);
}

static int on_text(void *arg, int count, char **values, char **names)
{
    (void)names;
    buf_put_text(arg, count && values[0] ? values[0] : "");
    return 0;
}

bool audit_db_text(sqlite3 *sqlite, const char *path, const char *sql, struct buf *text, struct err *err)
{
    return sqlite3_exec(sqlite, sql, on_text, text, NULL) == SQLITE_OK || audit_db_fail(sqlite, path, err);
}

bool audit_db_ask(sqlite3 *sqlite, const char *path, const char *sql, int64_t *number, struct err *err)
{
    struct buf text = {0};
    bool ok = audit_db_text(sqlite, path, sql, &text, err);
    *number = ok ? strtoll(buf_text(&text), NULL, 10) : 0;
    buf_release(&text);
    return ok;
}

// ---- opening --------------------------------------------------------------------------------

// The folders of a path nobody chose; what cannot be made shows when the file is.
static void make_folders(const char *path)
{
    char *part = mem_string(path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(part, 0700);
        *slash = '/';
    }
    free(part);
}

// Only for the owner; SQLite gives its other files the same mode. An existing file is not touched: closing a
// descriptor of it would drop the locks of others in this process.
static bool make_file(const char *path, struct err *err)
{
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST)
        return err_set(err, ERR_CONFIG, "%s: the audit database cannot be made: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return true;
}

static int on_busy(void *arg, int times)
{
    struct audit_db *db = arg;
    if (times >= BUSY_STEPS || atomic_load(&db->hurry))
        return 0;
    nanosleep(&(struct timespec){.tv_nsec = BUSY_STEP_MS * 1000000L}, NULL);
    return 1;
}

static bool prepare_insert(struct audit_db *db, struct err *err)
{
    struct buf sql = {0};
    buf_put_text(&sql, "INSERT INTO audit(\"seq\",\"time\"");
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        buf_printf(&sql, ",\"%s\"", field->name);
    buf_put_text(&sql, ",\"prev\",\"hash\") VALUES(?,?");
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        buf_put_text(&sql, ",?");
    buf_put_text(&sql, ",?,?)");
    bool ok =
        sqlite3_prepare_v3(db->sqlite, buf_text(&sql), -1, SQLITE_PREPARE_PERSISTENT, &db->insert, NULL) == SQLITE_OK ||
        audit_db_fail(db->sqlite, db->path, err);
    buf_release(&sql);
    return ok;
}

static bool set_up(struct audit_db *db, const struct audit_config *config, struct err *err)
{
    bool is_new = false;
    struct buf limit = {0};
    sqlite3_busy_handler(db->sqlite, on_busy, db);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    if (!audit_schema_check(db->sqlite, db->path, &is_new, err) ||
        (is_new && !audit_db_run(db->sqlite, db->path, "PRAGMA auto_vacuum=INCREMENTAL", err)) ||
        !audit_db_run(db->sqlite, db->path,
                      "PRAGMA journal_mode=WAL;PRAGMA wal_autocheckpoint=4000;PRAGMA journal_size_limit=67108864",
                      err) ||
        !audit_db_run(db->sqlite, db->path, config->required ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL",
                      err) ||
        (is_new && !audit_schema_make(db->sqlite, db->path, err)) || !audit_schema_upgrade(db->sqlite, db->path, err))
        return false;
    if (config->page_limit)
        buf_printf(&limit, "PRAGMA max_page_count=%" PRId64, config->page_limit);
    bool limited = audit_db_run(db->sqlite, db->path, buf_text(&limit), err);
    buf_release(&limit);
    struct audit_anchor anchor = {0};
    return limited && audit_db_anchor(db->sqlite, &anchor, err) && prepare_insert(db, err);
}

bool audit_db_open(struct audit_db *db, const struct audit_config *config, struct err *err)
{
    db->path = audit_path(config->path);
    if (!config->path)
        make_folders(db->path);
    if (make_file(db->path, err)) {
        if (sqlite3_open_v2(db->path, &db->sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
            (void)audit_db_fail(db->sqlite, db->path, err);
        else if (set_up(db, config, err))
            return true;
    }
    audit_db_close(db);
    return false;
}

void audit_db_close(struct audit_db *db)
{
    sqlite3_finalize(db->insert);
    sqlite3_close(db->sqlite);
    free(db->path);
    db->insert = NULL;
    db->sqlite = NULL;
    db->path = NULL;
}

static int reader_busy(void *arg, int times)
{
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = BUSY_STEP_MS * 1000000L}, NULL);
    return times < BUSY_STEPS;
}

sqlite3 *audit_db_open_to_read(const char *path, struct err *err)
{
    sqlite3 *sqlite = NULL;
    bool is_new = false;
    if (access(path, R_OK) != 0) {
        (void)err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
        return NULL;
    }
    if (sqlite3_open_v2(path, &sqlite, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        (void)audit_db_fail(sqlite, path, err);
        sqlite3_close(sqlite);
        return NULL;
    }
    sqlite3_busy_handler(sqlite, reader_busy, NULL);
    sqlite3_db_config(sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    bool ok = audit_schema_check(sqlite, path, &is_new, err);
    if (ok && is_new)
        ok = err_set(err, ERR_CONFIG, "%s: an empty file, not an audit database", path);
    if (ok)
        return sqlite;
    sqlite3_close(sqlite);
    return NULL;
}

// ---- the anchor -----------------------------------------------------------------------------

static bool take_hash(sqlite3_stmt *select, int column, char out[AUDIT_HASH_CHARS + 1])
{
    const void *text = sqlite3_column_text(select, column);
    if (!text || sqlite3_column_bytes(select, column) != AUDIT_HASH_CHARS)
        return false;
    memcpy(out, text, AUDIT_HASH_CHARS);
    out[AUDIT_HASH_CHARS] = '\0';
    return true;
}

bool audit_db_anchor(sqlite3 *sqlite, struct audit_anchor *anchor, struct err *err)
{
    sqlite3_stmt *select = NULL;
    const char *path = sqlite3_db_filename(sqlite, "main");
    if (sqlite3_prepare_v2(sqlite, "SELECT first_seq,first_prev,head_seq,head_hash FROM anchor", -1, &select, NULL) !=
        SQLITE_OK)
        return audit_db_fail(sqlite, path, err);
    int got = sqlite3_step(select);
    bool ok = got == SQLITE_ROW && take_hash(select, 1, anchor->first_prev) && take_hash(select, 3, anchor->head_hash);
    if (ok) {
        anchor->first_seq = sqlite3_column_int64(select, 0);
        anchor->head_seq = sqlite3_column_int64(select, 2);
    } else if (got == SQLITE_ROW || got == SQLITE_DONE) {
        (void)err_set(err, ERR_CONFIG, "%s: the anchor of the audit database is missing or not one; move the file away",
                      path);
    } else {
        (void)audit_db_fail(sqlite, path, err);
    }
    sqlite3_finalize(select);
    return ok;
}

static bool put_anchor(struct audit_db *db, const struct audit_anchor *anchor, struct err *err)
{
    struct buf sql = {0};
    buf_printf(&sql,
               "UPDATE anchor SET first_seq=%" PRId64 ",first_prev='%s',head_seq=%" PRId64 ",head_hash='%s' WHERE id=1",
               anchor->first_seq, anchor->first_prev, anchor->head_seq, anchor->head_hash);
    bool ok = audit_db_run(db->sqlite, db->path, buf_text(&sql), err);
    buf_release(&sql);
    return ok;
}

// ---- writing --------------------------------------------------------------------------------

static void bind_text(sqlite3_stmt *insert, int column, struct span text)
{
    if (text.len)
        sqlite3_bind_text(insert, column, text.at, (int)text.len, SQLITE_STATIC);
    else
        sqlite3_bind_null(insert, column);
}

static void bind_row(sqlite3_stmt *insert, const struct audit_row *row)
{
    int column = 1;
    sqlite3_bind_int64(insert, column++, row->seq);
    bind_text(insert, column++, row->time);
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++) {
        const void *at = (const char *)&row->record + field->offset;
        if (field->type == AUDIT_ROW_TEXT)
            bind_text(insert, column++, *(const struct span *)at);
        else if (field->type == AUDIT_ROW_WORD)
            bind_text(insert, column++, span_of(field->words[*(const unsigned *)at]));
        else
            sqlite3_bind_int64(insert, column++, *(const int64_t *)at);
    }
    bind_text(insert, column++, row->prev);
    bind_text(insert, column, row->hash);
}

// Puts the record at the end of the chain, and moves the anchor in memory.
static bool append(struct audit_db *db, struct audit_anchor *anchor, const struct audit_record *record,
                   struct buf *scratch, struct err *err)
{
    char stamp[AUDIT_ROW_STAMP_CHARS + 1], hash[AUDIT_HASH_CHARS + 1];
    audit_row_stamp(record->time_ms, stamp);
    struct audit_row row = {.seq = anchor->head_seq + 1,
                            .time = span_make(stamp, AUDIT_ROW_STAMP_CHARS),
                            .record = *record,
                            .prev = span_make(anchor->head_hash, AUDIT_HASH_CHARS)};
    audit_row_hash(&row, scratch, hash);
    row.hash = span_make(hash, AUDIT_HASH_CHARS);
    bind_row(db->insert, &row);
    bool ok = sqlite3_step(db->insert) == SQLITE_DONE || audit_db_fail(db->sqlite, db->path, err);
    sqlite3_reset(db->insert);
    anchor->head_seq = row.seq;
    memcpy(anchor->head_hash, hash, sizeof hash);
    return ok;
}

// The row just hashed, as a line: the hashed text without its brace, and the two hashes.
static void put_line(struct buf *lines, struct span chained, const struct audit_anchor *anchor)
{
    struct span json = span_after(chained, AUDIT_HASH_CHARS);
    buf_put(lines, json.at, json.len - 1);
    buf_put_text(lines, ",\"prev\":\"");
    buf_put(lines, chained.at, AUDIT_HASH_CHARS);
    buf_put_text(lines, "\",\"hash\":\"");
    buf_put_text(lines, anchor->head_hash);
    buf_put_text(lines, "\"}\n");
}

// Rows behind the head are not ours; the chain goes on after them, and verify tells.
static bool start(struct audit_db *db, struct audit_anchor *anchor, struct err *err)
{
    int64_t last;
    if (!audit_db_run(db->sqlite, db->path, "BEGIN IMMEDIATE", err))
        return false;
    if (!audit_db_anchor(db->sqlite, anchor, err) ||
        !audit_db_ask(db->sqlite, db->path, "SELECT max(\"seq\") FROM audit", &last, err))
        return false;
    if (last > anchor->head_seq)
        anchor->head_seq = last;
    return true;
}

static bool add_all(struct audit_db *db, struct audit_anchor *anchor, struct audit_record *records, size_t count,
                    struct buf *lines, struct err *err)
{
    struct buf scratch = {0};
    struct arena arena = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        if (atomic_load(&db->hurry)) {
            ok = err_set(err, ERR_SYSTEM, "%s: there was no time left to write", db->path);
            break;
        }
        audit_row_clean(&arena, &records[i]);
        ok = append(db, anchor, &records[i], &scratch, err);
        if (ok && lines)
            put_line(lines, buf_span(&scratch), anchor);
    }
    buf_release(&scratch);
    arena_release(&arena);
    return ok;
}

static bool finish(struct audit_db *db, const struct audit_anchor *anchor, bool ok, struct err *err)
{
    if (ok && put_anchor(db, anchor, err) && audit_db_run(db->sqlite, db->path, "COMMIT", err))
        return true;
    sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
    return false;
}

bool audit_db_write(struct audit_db *db, struct audit_record *records, size_t count, struct buf *lines,
                    int64_t *last_seq, struct err *err)
{
    struct audit_anchor anchor = {0};
    bool ok = start(db, &anchor, err) && add_all(db, &anchor, records, count, lines, err);
    if (!finish(db, &anchor, ok, err))
        return false;
    *last_seq = anchor.head_seq;
    return true;
}

// ---- retention ------------------------------------------------------------------------------

// The first row to keep because of its age; only the oldest `rows` are looked at.
static bool cut_by_age(struct audit_db *db, const struct audit_anchor *anchor, const struct audit_db_limits *limits,
                       int64_t *cut, struct err *err)
{
    char stamp[AUDIT_ROW_STAMP_CHARS + 1];
    struct buf sql = {0};
    audit_row_stamp(limits->before_ms, stamp);
    buf_printf(&sql, "SELECT min(\"seq\") FROM audit WHERE \"seq\"<%" PRId64 " AND +\"time\">='%s'",
               anchor->first_seq + limits->rows, stamp);
    bool ok = audit_db_ask(db->sqlite, db->path, buf_text(&sql), cut, err);
    buf_release(&sql);
    if (ok && *cut == 0) {  // none of them: all go
        int64_t end = anchor->first_seq + limits->rows;
        *cut = end <= anchor->head_seq ? end : anchor->head_seq + 1;
    }
    return ok;
}

// The first row to keep because of the size: to nine tenths of the limit, by the mean size of a row.
static bool cut_by_size(struct audit_db *db, const struct audit_anchor *anchor, const struct audit_db_limits *limits,
                        int64_t *cut, struct err *err)
{
    int64_t pages, spare, page_size, rows = anchor->head_seq - anchor->first_seq + 1;
    if (!audit_db_ask(db->sqlite, db->path, "PRAGMA page_count", &pages, err) ||
        !audit_db_ask(db->sqlite, db->path, "PRAGMA freelist_count", &spare, err) ||
        !audit_db_ask(db->sqlite, db->path, "PRAGMA page_size", &page_size, err))
        return false;
    int64_t used = (pages - spare) * page_size;
    *cut = anchor->first_seq;
    if (used <= limits->size || rows < 2)
        return true;
    int64_t over = (used - limits->size / 10 * 9) / (used / rows + 1) + 1;
    if (over > limits->rows)
        over = limits->rows;
    *cut += over < rows ? over : rows - 1;
    return true;
}

static bool prev_of(struct audit_db *db, int64_t seq, char out[AUDIT_HASH_CHARS + 1], struct err *err)
{
    sqlite3_stmt *select = NULL;
    if (sqlite3_prepare_v2(db->sqlite, "SELECT \"prev\" FROM audit WHERE \"seq\">=? ORDER BY \"seq\" LIMIT 1", -1,
                           &select, NULL) != SQLITE_OK)
        return audit_db_fail(db->sqlite, db->path, err);
    sqlite3_bind_int64(select, 1, seq);
    bool ok = sqlite3_step(select) == SQLITE_ROW && take_hash(select, 0, out);
    sqlite3_finalize(select);
    return ok || err_set(err, ERR_SYSTEM, "%s: row %" PRId64 " of the audit cannot be read", db->path, seq);
}

static bool drop_before(struct audit_db *db, struct audit_anchor *anchor, int64_t cut, int64_t *deleted,
                        struct err *err)
{
    struct buf sql = {0};
    buf_printf(&sql, "DELETE FROM audit WHERE \"seq\"<%" PRId64, cut);
    if (cut > anchor->head_seq)
        memcpy(anchor->first_prev, anchor->head_hash, sizeof anchor->first_prev);
    else if (!prev_of(db, cut, anchor->first_prev, err))
        return false;
    bool ok = audit_db_run(db->sqlite, db->path, buf_text(&sql), err);
    buf_release(&sql);
    *deleted = sqlite3_changes64(db->sqlite);
    anchor->first_seq = cut;
    return ok;
}

static bool trim(struct audit_db *db, struct audit_anchor *anchor, const struct audit_db_limits *limits,
                 struct buf *lines, int64_t *deleted, struct err *err)
{
    int64_t by_age = 0, by_size = 0;
    if (limits->before_ms && !cut_by_age(db, anchor, limits, &by_age, err))
        return false;
    if (limits->size && !cut_by_size(db, anchor, limits, &by_size, err))
        return false;
    int64_t cut = by_age > by_size ? by_age : by_size;
    if (cut <= anchor->first_seq)
        return true;
    if (!drop_before(db, anchor, cut, deleted, err))
        return false;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct audit_record record = {.time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000,
                                  .event = AUDIT_RETENTION,
                                  .status = AUDIT_OK,
                                  .reason = span_of(by_age >= by_size ? "age" : "size"),
                                  .count = *deleted,
                                  .first_seq = cut};
    return add_all(db, anchor, &record, 1, lines, err);
}

// Is a look enough? Nothing is written when the oldest row is young and the file small.
static bool over(struct audit_db *db, const struct audit_db_limits *limits, bool *yes, struct err *err)
{
    struct audit_anchor anchor = {0};
    int64_t by_age = 0, by_size = 0;
    *yes = false;
    if (!audit_db_anchor(db->sqlite, &anchor, err))
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
    return audit_db_run(db->sqlite, db->path, "PRAGMA incremental_vacuum", err);
}

// ---- reading --------------------------------------------------------------------------------

// Absent or a clean text that is not empty.
static bool read_text(sqlite3_stmt *select, int column, struct span *out)
{
    *out = (struct span){NULL, 0};
    if (sqlite3_column_type(select, column) == SQLITE_NULL)
        return true;
    if (sqlite3_column_type(select, column) != SQLITE_TEXT)
        return false;
    out->at = (const char *)sqlite3_column_text(select, column);
    out->len = (size_t)sqlite3_column_bytes(select, column);
    return out->at && out->len && audit_row_is_clean(*out);
}

static bool read_word(struct span text, const char *const *words, unsigned *out)
{
    for (*out = 0; words[*out]; ++*out)
        if (span_is(text, words[*out]))
            return true;
    *out = 0;
    return false;
}

static bool read_field(sqlite3_stmt *select, int column, const struct audit_row_field *field,
                       struct audit_record *record)
{
    void *at = (char *)record + field->offset;
    struct span word;
    if (field->type == AUDIT_ROW_TEXT)
        return read_text(select, column, at);
    if (field->type == AUDIT_ROW_WORD)
        return read_text(select, column, &word) && read_word(word, field->words, at);
    *(int64_t *)at = sqlite3_column_int64(select, column);
    return sqlite3_column_type(select, column) == SQLITE_INTEGER;
}

const char *audit_db_row(sqlite3_stmt *select, struct audit_row *row)
{
    const char *wrong = NULL;
    int column = 0;
    *row = (struct audit_row){.seq = sqlite3_column_int64(select, column++)};
    if (!read_text(select, column++, &row->time))
        wrong = "time";
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        if (!read_field(select, column++, field, &row->record) && !wrong)
            wrong = field->name;
    if (!read_text(select, column++, &row->prev) && !wrong)
        wrong = "prev";
    if (!read_text(select, column, &row->hash) && !wrong)
        wrong = "hash";
    return wrong;
}
