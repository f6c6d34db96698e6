// Owns reading the audit log: segments in order, the matching rows in them, and continuing after the end.
//
// The reader works in passes, each up to the newest segment at its beginning. It holds no lock between two segments, so
// that the write-ahead log can be checkpointed however long a command follows the audit log.
#include "base/mem.h"
#include "db.h"
#include "rows.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct audit_reader {
    struct db db;
    sqlite3_stmt *forward, *backward;
    const struct audit_filter *filter;
    int64_t from, to;  // segments of this pass; the next one begins after `to`
    bool passing;
    bool again;    // a later pass than the first
    int64_t skip;  // matching rows to skip, because there are more than the limit

    struct buf shared, texts;  // of the current segment
    struct audit_rows rows;    // the remaining rows of the segment
    struct arena arena;        // of the current row
    char prev[AUDIT_HASH_CHARS + 1], hash[AUDIT_HASH_CHARS + 1];
    struct buf json;
};

#define SEGMENT(order)                                                                                              \
    "SELECT " AUDIT_SEGMENT_COLUMNS " FROM segment WHERE seq>=?1 AND seq<=?2 AND until>=?3 AND (?4=0 OR since<?4) " \
    "ORDER BY seq " order " LIMIT 1"

struct audit_reader *audit_reader_open(const char *path, const struct audit_filter *filter, struct err *err)
{
    struct audit_reader *reader = mem_new(struct audit_reader);
    reader->filter = filter;
    reader->from = 1;
    if (audit_db_open_to_read(&reader->db, path, err) &&
        (reader->forward = db_prepare(&reader->db, SEGMENT("ASC"), err)) &&
        (reader->backward = db_prepare(&reader->db, SEGMENT("DESC"), err)))
        return reader;
    audit_reader_close(reader);
    return NULL;
}

void audit_reader_close(struct audit_reader *reader)
{
    if (!reader)
        return;
    sqlite3_finalize(reader->forward);
    sqlite3_finalize(reader->backward);
    db_close(&reader->db);
    buf_release(&reader->shared);
    buf_release(&reader->texts);
    audit_rows_release(&reader->rows);
    arena_release(&reader->arena);
    buf_release(&reader->json);
    free(reader);
}

// ---- rows of the current segment ------------------------------------------------------------

static bool is_meant(const char *wanted, struct span text) { return !wanted || span_is(text, wanted); }

static bool is_in_time(const struct audit_filter *filter, struct span time)
{
    char since[AUDIT_ROW_STAMP_CHARS + 1], until[AUDIT_ROW_STAMP_CHARS + 1];
    audit_row_stamp(filter->since_ms, since);
    audit_row_stamp(filter->until_ms, until);
    return time.len == AUDIT_ROW_STAMP_CHARS && memcmp(time.at, since, time.len) >= 0 &&
           (!filter->until_ms || memcmp(time.at, until, time.len) < 0);
}

static bool matches(const struct audit_filter *filter, const struct audit_row *row)
{
    const struct audit_record *record = &row->record;
    return is_meant(filter->subject, record->subject) && is_meant(filter->tenant, record->tenant) &&
           is_meant(filter->server, record->server) && is_meant(filter->name, record->name) &&
           (!filter->denied || record->decision == AUDIT_DENY || record->status == AUDIT_DENIED) &&
           ((!filter->since_ms && !filter->until_ms) || is_in_time(filter, row->time));
}

// Finds the next matching row. Invalid rows are skipped: audit_verify() reports them.
static bool next_row(struct audit_reader *reader, struct audit_row *row)
{
    struct span whole;
    while (audit_rows_next(&reader->rows, &whole)) {
        arena_release(&reader->arena);
        if (!audit_row_read(whole, &reader->arena, row))
            continue;
        memcpy(reader->prev, reader->hash, sizeof reader->prev);
        memcpy(reader->hash, row->hash.at, AUDIT_HASH_CHARS);
        if (!matches(reader->filter, row))
            continue;
        row->prev = span_of(reader->prev);
        buf_clear(&reader->json);
        audit_row_show(reader->prev, whole, &reader->json);
        row->json = buf_span(&reader->json);
        return true;
    }
    return false;
}

// ---- segments -------------------------------------------------------------------------------

// Reads the first or the last of the remaining segments. If its text is invalid, it counts as a segment without rows.
static enum audit_next take_segment(struct audit_reader *reader, sqlite3_stmt *select, int64_t *seq, struct err *err)
{
    struct audit_segment segment = {0};
    const int64_t bounds[] = {reader->from, reader->to, reader->filter->since_ms, reader->filter->until_ms};
    for (int i = 0; i < 4; i++)
        sqlite3_bind_int64(select, i + 1, bounds[i]);
    int got = sqlite3_step(select);
    buf_clear(&reader->shared);
    buf_clear(&reader->texts);
    if (got == SQLITE_ROW) {
        audit_db_segment(select, &segment);
        *seq = segment.first;
        buf_put_span(&reader->shared, segment.shared);
        buf_put_span(&reader->texts, segment.rows);
        snprintf(reader->hash, sizeof reader->hash, "%.*s", SPAN_ARG(segment.prev));
    } else if (got != SQLITE_DONE) {
        (void)db_fail(&reader->db, err);
    }
    sqlite3_reset(select);
    segment.shared = buf_span(&reader->shared);
    segment.rows = buf_span(&reader->texts);
    (void)audit_rows_open(&reader->rows, &segment);
    return got == SQLITE_ROW ? AUDIT_READ_ROW : got == SQLITE_DONE ? AUDIT_READ_END : AUDIT_READ_FAILED;
}

// Finds the beginning of the last rows: reads backwards until there are enough.
static bool find_last(struct audit_reader *reader, struct err *err)
{
    struct audit_row row;
    int64_t found = 0, seq = 0, newest = reader->to;
    enum audit_next got = AUDIT_READ_END;
    while (found < reader->filter->limit &&
           (got = take_segment(reader, reader->backward, &seq, err)) == AUDIT_READ_ROW) {
        while (next_row(reader, &row))
            found++;
        reader->to = seq - 1;
    }
    reader->from = found < reader->filter->limit ? reader->from : seq;
    reader->skip = found < reader->filter->limit ? 0 : found - reader->filter->limit;
    reader->to = newest;
    (void)audit_rows_open(&reader->rows, &(struct audit_segment){0});
    return got != AUDIT_READ_FAILED;
}

static bool start_pass(struct audit_reader *reader, struct err *err)
{
    int64_t newest;
    if (!db_ask(&reader->db, "SELECT max(seq) FROM segment", &newest, err))
        return false;
    reader->to = newest;
    (void)audit_rows_open(&reader->rows, &(struct audit_segment){0});
    bool last = !reader->again && reader->filter->limit > 0;
    reader->again = reader->passing = true;
    return !last || find_last(reader, err);
}

enum audit_next audit_reader_next(struct audit_reader *reader, struct audit_row *row, struct err *err)
{
    enum audit_next got = AUDIT_READ_ROW;
    int64_t seq;
    if (!reader->passing && !start_pass(reader, err))
        return AUDIT_READ_FAILED;
    while (got == AUDIT_READ_ROW) {
        while (next_row(reader, row)) {
            if (!reader->skip)
                return AUDIT_READ_ROW;
            reader->skip--;
        }
        got = take_segment(reader, reader->forward, &seq, err);
        if (got == AUDIT_READ_ROW)
            reader->from = seq + 1;
    }
    reader->passing = false;
    if (reader->from <= reader->to)
        reader->from = reader->to + 1;
    return got;
}

// ---- uses of tokens --------------------------------------------------------------------------

bool audit_reader_uses(const char *path, void (*on_use)(void *arg, struct span token, struct span time), void *arg,
                       struct err *err)
{
    struct audit_filter all = {0};
    struct audit_row row;
    enum audit_next got = AUDIT_READ_FAILED;
    struct audit_reader *reader = audit_reader_open(path, &all, err);
    while (reader && (got = audit_reader_next(reader, &row, err)) == AUDIT_READ_ROW)
        if (row.record.event == AUDIT_CALL && row.record.token.len)
            on_use(arg, row.record.token, row.time);
    audit_reader_close(reader);
    return got == AUDIT_READ_END;
}
