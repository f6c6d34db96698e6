// Owns the check of the audit's chain: which row was changed, moved, added or taken out.
//
// Each row is held against its own hash, its seq against its place, what a segment says of itself against its rows, and
// both ends against the anchor. What one change breaks is told once: after a finding the check goes on from what the row
// says.
#include "audit_db.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct check {
    void (*on_finding)(void *arg, int64_t seq, const char *text);
    void *arg;
    struct audit_verdict *verdict;
    struct audit_anchor anchor;
    int64_t next_seq;
    // What comes before the next row: the hash the last row states, or the one it should have. Empty: not known.
    char stated[AUDIT_HASH_CHARS + 1], proper[AUDIT_HASH_CHARS + 1];
    int64_t kept_from;  // what the last retention row says; 0: there is none
    struct audit_rows rows;
    struct arena arena;
};

// What the rows of a segment are, to hold against what it says.
struct seen {
    int64_t first, last;
    char since[AUDIT_ROW_STAMP_CHARS + 1], until[AUDIT_ROW_STAMP_CHARS + 1];
};

static void tell(struct check *check, int64_t seq, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void tell(struct check *check, int64_t seq, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    check->verdict->findings++;
    if (check->on_finding)
        check->on_finding(check->arg, seq, text);
}

static void missing(struct check *check, int64_t from, int64_t to, const char *where)
{
    if (from == to)
        tell(check, from, "row %" PRId64 " is missing%s", from, where);
    else
        tell(check, from, "rows %" PRId64 " to %" PRId64 " are missing%s", from, to, where);
    check->stated[0] = check->proper[0] = '\0';
}

// ---- rows -----------------------------------------------------------------------------------

static bool follows(struct check *check, const char *prev, struct span hash)
{
    char proper[AUDIT_HASH_CHARS + 1];
    audit_rows_hash(&check->rows, prev, proper);
    return span_is(hash, proper);
}

static void check_row(struct check *check, const struct audit_row *row)
{
    bool moved = row->seq < check->next_seq;
    if (row->seq > check->next_seq)
        missing(check, check->next_seq, row->seq - 1, check->verdict->rows == 1 ? " at the beginning" : "");
    if (moved)
        tell(check, row->seq, "row %" PRId64 " is out of order: it stands where row %" PRId64 " belongs", row->seq,
             check->next_seq);
    else if (check->stated[0] && !follows(check, check->stated, row->hash) && !follows(check, check->proper, row->hash))
        tell(check, row->seq, "row %" PRId64 " does not match its hash: it was changed, or the row before it replaced",
             row->seq);
    audit_rows_hash(&check->rows, check->stated, check->proper);
    snprintf(check->stated, sizeof check->stated, "%.*s", SPAN_ARG(row->hash));
    if (moved)
        check->stated[0] = check->proper[0] = '\0';
    else
        check->next_seq = row->seq + 1;
}

static void note_row(struct check *check, const struct audit_row *row)
{
    struct audit_verdict *verdict = check->verdict;
    if (verdict->rows++ == 0)
        verdict->first_seq = row->seq;
    verdict->last_seq = row->seq;
    if (row->record.event == AUDIT_RETENTION)
        check->kept_from = row->record.first_seq;
    if (row->record.event == AUDIT_GAP)
        verdict->dropped += row->record.count;
}

static void see(struct seen *seen, const struct audit_row *row)
{
    char time[AUDIT_ROW_STAMP_CHARS + 1];
    snprintf(time, sizeof time, "%.*s", SPAN_ARG(row->time));
    if (!seen->first || strcmp(time, seen->since) < 0)
        memcpy(seen->since, time, sizeof time);
    if (!seen->first || strcmp(time, seen->until) > 0)
        memcpy(seen->until, time, sizeof time);
    seen->last = row->seq;
    if (!seen->first)
        seen->first = row->seq;
}

// ---- segments -------------------------------------------------------------------------------

static void unreadable(struct check *check, int64_t from, int64_t to)
{
    if (from == to)
        tell(check, from, "row %" PRId64 " was changed: it is nothing that was ever written", from);
    else
        tell(check, from, "rows %" PRId64 " to %" PRId64 " were changed: they are nothing that was ever written", from,
             to);
    check->stated[0] = check->proper[0] = '\0';
    if (to >= check->next_seq)
        check->next_seq = to + 1;
}

static void check_labels(struct check *check, const struct audit_segment *segment, const struct seen *seen)
{
    char since[AUDIT_ROW_STAMP_CHARS + 1], until[AUDIT_ROW_STAMP_CHARS + 1];
    audit_row_stamp(segment->since_ms, since);
    audit_row_stamp(segment->until_ms, until);
    if (segment->last > seen->last) {
        missing(check, seen->last + 1, segment->last, "");
        check->next_seq = segment->last + 1;
    } else if (segment->first != seen->first || segment->last != seen->last || strcmp(since, seen->since) != 0 ||
               strcmp(until, seen->until) != 0) {
        tell(check, segment->first, "the segment of row %" PRId64 " is not labelled as its rows are", segment->first);
    }
}

static void check_segment(struct check *check, const struct audit_segment *segment)
{
    struct span whole;
    struct seen seen = {0};
    size_t findings = check->verdict->findings;
    if (!audit_rows_open(&check->rows, segment)) {
        unreadable(check, segment->first, segment->last);
        return;
    }
    if (segment->first == check->next_seq && check->stated[0] && !span_is(segment->prev, check->stated) &&
        !span_is(segment->prev, check->proper))
        tell(check, segment->first, "row %" PRId64 " does not follow row %" PRId64 ": one of them was replaced",
             segment->first, segment->first - 1);
    while (audit_rows_next(&check->rows, &whole)) {
        struct audit_row row;
        arena_release(&check->arena);
        if (!audit_row_read(whole, &check->arena, &row)) {
            unreadable(check, check->next_seq, check->next_seq);
            continue;
        }
        note_row(check, &row);
        check_row(check, &row);
        see(&seen, &row);
    }
    if (check->verdict->findings == findings)
        check_labels(check, segment, &seen);
}

static void check_ends(struct check *check)
{
    const struct audit_anchor *anchor = &check->anchor;
    if (check->next_seq <= anchor->head_seq)
        missing(check, check->next_seq, anchor->head_seq, " at the end");
    else if (check->next_seq > anchor->head_seq + 1)
        tell(check, anchor->head_seq + 1, "rows after %" PRId64 " were added by somebody else", anchor->head_seq);
    else if (check->stated[0] && strcmp(check->stated, anchor->head_hash) != 0 &&
             strcmp(check->proper, anchor->head_hash) != 0)
        tell(check, anchor->head_seq, "row %" PRId64 " is not the last row that was written", anchor->head_seq);
    int64_t first = check->kept_from ? check->kept_from : 1;
    if (anchor->first_seq != first)
        tell(check, anchor->first_seq,
             "the anchor was changed: it begins with row %" PRId64 ", the chain says %" PRId64, anchor->first_seq,
             first);
}

static bool walk_segments(struct check *check, struct db *db, struct err *err)
{
    int got;
    struct audit_segment segment;
    sqlite3_stmt *select = db_prepare(db, "SELECT " AUDIT_SEGMENT_COLUMNS " FROM segment ORDER BY seq", err);
    if (!select)
        return false;
    while ((got = sqlite3_step(select)) == SQLITE_ROW) {
        audit_db_segment(select, &segment);
        check_segment(check, &segment);
    }
    bool ok = got == SQLITE_DONE || db_fail(db, err);
    sqlite3_finalize(select);
    return ok;
}

bool audit_verify(const char *path, void (*on_finding)(void *arg, int64_t seq, const char *text), void *arg,
                  struct audit_verdict *verdict, struct err *err)
{
    *verdict = (struct audit_verdict){0};
    struct check check = {.on_finding = on_finding, .arg = arg, .verdict = verdict};
    struct db db;
    if (!audit_db_open_to_read(&db, path, err))
        return false;
    bool ok = db_run(&db, "BEGIN", err) && audit_db_anchor(&db, &check.anchor, err);
    if (ok) {
        check.next_seq = check.anchor.first_seq;
        memcpy(check.stated, check.anchor.first_prev, sizeof check.stated);
        memcpy(check.proper, check.anchor.first_prev, sizeof check.proper);
        ok = walk_segments(&check, &db, err);
    }
    if (ok)
        check_ends(&check);
    memcpy(verdict->head, check.anchor.head_hash, sizeof verdict->head);
    audit_rows_release(&check.rows);
    arena_release(&check.arena);
    db_close(&db);
    return ok;
}
