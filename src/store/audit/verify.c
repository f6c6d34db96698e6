// Owns the check of the audit chains: finds rows that were changed, moved, added or removed.
//
// Each row is compared with its own hash and with the previous row of its chain, its seq with its place, the labels of a
// segment with its rows, and both ends of each chain with the anchor. A gap in the sequence of all rows is legitimate only
// where retention has deleted rows; there, the hashes of each chain show whether its own rows are complete. One change is
// reported once: after a finding, the check continues from the values in the row.
#include "db.h"
#include "rows.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct check {
    void (*on_finding)(void *arg, int64_t seq, const char *text);
    void *arg;
    struct audit_verdict *verdict;
    struct audit_anchors anchors;
    int64_t next_seq;
    int64_t deleted_below;  // retention may have deleted rows before this one
    struct chain_check {
        // The previous hash of the chain's next row: the hash stated in the last row, or the correct one. Empty: not known.
        char stated[AUDIT_HASH_CHARS + 1], proper[AUDIT_HASH_CHARS + 1];
        int64_t last;       // its last row so far; 0: not found yet
        int64_t kept_from;  // first_seq of its last retention row; 0: without one
    } chains[AUDIT_CHAINS];
    struct audit_rows rows;
    struct arena arena;
};

// The properties of a segment's rows, to compare with its labels.
struct seen {
    int64_t first, last;
    bool stray;  // a row belongs to another chain
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

// After this, the chain of the next row is not known.
static void lose_thread(struct check *check)
{
    for (size_t i = 0; i < AUDIT_CHAINS; i++)
        check->chains[i].stated[0] = check->chains[i].proper[0] = '\0';
}

static void missing(struct check *check, int64_t from, int64_t to, const char *where)
{
    if (from == to)
        tell(check, from, "row %" PRId64 " is missing%s", from, where);
    else
        tell(check, from, "rows %" PRId64 " to %" PRId64 " are missing%s", from, to, where);
    lose_thread(check);
}

// ---- rows -----------------------------------------------------------------------------------

static bool follows(struct check *check, const char *prev, struct span hash)
{
    char proper[AUDIT_HASH_CHARS + 1];
    audit_rows_hash(&check->rows, prev, proper);
    return span_is(hash, proper);
}

static void check_row(struct check *check, struct chain_check *chain, const struct audit_row *row)
{
    bool moved = row->seq < check->next_seq;
    if (row->seq > check->next_seq)
        missing(check, check->next_seq, row->seq - 1, check->verdict->rows == 1 ? " at the beginning" : "");
    if (moved)
        tell(check, row->seq, "row %" PRId64 " is out of order: it is where row %" PRId64 " belongs", row->seq,
             check->next_seq);
    else if (chain->stated[0] && !follows(check, chain->stated, row->hash) && !follows(check, chain->proper, row->hash))
        tell(check, row->seq,
             "row %" PRId64 " does not match its hash: it was changed, or the row before it was replaced", row->seq);
    audit_rows_hash(&check->rows, chain->stated, chain->proper);
    snprintf(chain->stated, sizeof chain->stated, "%.*s", SPAN_ARG(row->hash));
    if (moved)
        chain->stated[0] = chain->proper[0] = '\0';
    else
        check->next_seq = row->seq + 1;
    chain->last = row->seq;
}

static void note_row(struct check *check, const struct audit_row *row)
{
    struct audit_verdict *verdict = check->verdict;
    if (verdict->rows++ == 0)
        verdict->first_seq = row->seq;
    verdict->last_seq = row->seq;
    if (row->record.event == AUDIT_RETENTION)
        check->chains[audit_row_chain(&row->record)].kept_from = row->record.first_seq;
    if (row->record.event == AUDIT_GAP)
        verdict->dropped += row->record.count;
}

static void see(struct seen *seen, const struct audit_segment *segment, const struct audit_row *row)
{
    char time[AUDIT_ROW_STAMP_CHARS + 1];
    snprintf(time, sizeof time, "%.*s", SPAN_ARG(row->time));
    if (!seen->first || strcmp(time, seen->since) < 0)
        memcpy(seen->since, time, sizeof time);
    if (!seen->first || strcmp(time, seen->until) > 0)
        memcpy(seen->until, time, sizeof time);
    seen->last = row->seq;
    seen->stray |= audit_row_chain(&row->record) != segment->chain;
    if (!seen->first)
        seen->first = row->seq;
}

// ---- segments -------------------------------------------------------------------------------

static void unreadable(struct check *check, int64_t from, int64_t to)
{
    if (from == to)
        tell(check, from, "row %" PRId64 " was changed: it is not a valid row", from);
    else
        tell(check, from, "rows %" PRId64 " to %" PRId64 " were changed: they are not valid rows", from, to);
    lose_thread(check);
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
    } else if (segment->first != seen->first || segment->last != seen->last || seen->stray ||
               strcmp(since, seen->since) != 0 || strcmp(until, seen->until) != 0) {
        tell(check, segment->first, "the labels of the segment of row %" PRId64 " do not match its rows",
             segment->first);
    }
}

// Advances to the first row of the segment, as far as retention may have deleted the rows before it.
static void pass_deleted(struct check *check, const struct audit_segment *segment)
{
    int64_t to = segment->first < check->deleted_below ? segment->first : check->deleted_below;
    if (check->next_seq < to)
        check->next_seq = to;
}

static void check_segment_chain(struct check *check, const struct audit_segment *segment)
{
    struct chain_check *chain = &check->chains[segment->chain];
    if (segment->first != check->next_seq || !chain->stated[0] || span_is(segment->prev, chain->stated) ||
        span_is(segment->prev, chain->proper))
        return;
    tell(check, segment->first,
         "row %" PRId64 " does not follow row %" PRId64 ": one of them was replaced, or rows between them were removed",
         segment->first, chain->last ? chain->last : segment->first - 1);
    snprintf(chain->proper, sizeof chain->proper, "%.*s",
             SPAN_ARG(segment->prev));  // the segment's first row may follow it
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
    pass_deleted(check, segment);
    check_segment_chain(check, segment);
    while (audit_rows_next(&check->rows, &whole)) {
        struct audit_row row;
        arena_release(&check->arena);
        if (!audit_row_read(whole, &check->arena, &row)) {
            unreadable(check, check->next_seq, check->next_seq);
            continue;
        }
        note_row(check, &row);
        check_row(check, &check->chains[segment->chain], &row);
        see(&seen, segment, &row);
    }
    if (check->verdict->findings == findings)
        check_labels(check, segment, &seen);
}

static void check_chain_ends(struct check *check, enum audit_chain which)
{
    const struct audit_anchor *anchor = &check->anchors.of[which];
    const struct chain_check *chain = &check->chains[which];
    if (chain->stated[0] && strcmp(chain->stated, anchor->head_hash) != 0 &&
        strcmp(chain->proper, anchor->head_hash) != 0)
        tell(check, anchor->head_seq, "row %" PRId64 " is not the last row of %s that was written",
             chain->last ? chain->last : anchor->head_seq, audit_row_chain_text(which));
    int64_t first = chain->kept_from ? chain->kept_from : 1;
    if (anchor->first_seq != first)
        tell(check, anchor->first_seq,
             "the anchor of %s was changed: it names row %" PRId64
             " as the first, but the chain begins with row %" PRId64,
             audit_row_chain_text(which), anchor->first_seq, first);
}

static void check_ends(struct check *check)
{
    int64_t head = 0;
    for (size_t i = 0; i < AUDIT_CHAINS; i++)
        if (check->anchors.of[i].head_seq > head)
            head = check->anchors.of[i].head_seq;
    if (check->next_seq <= head)
        missing(check, check->next_seq, head, " at the end");
    if (check->next_seq > head + 1) {
        tell(check, head + 1, "rows after %" PRId64 " were not written by postern", head);
        lose_thread(check);
    }
    for (enum audit_chain chain = 0; chain < AUDIT_CHAINS; chain++)
        check_chain_ends(check, chain);
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

static void begin(struct check *check)
{
    check->next_seq = 1;
    for (size_t i = 0; i < AUDIT_CHAINS; i++) {
        const struct audit_anchor *anchor = &check->anchors.of[i];
        memcpy(check->chains[i].stated, anchor->first_prev, sizeof check->chains[i].stated);
        memcpy(check->chains[i].proper, anchor->first_prev, sizeof check->chains[i].proper);
        if (anchor->first_seq > check->deleted_below)
            check->deleted_below = anchor->first_seq;
    }
}

bool audit_verify(const char *path, void (*on_finding)(void *arg, int64_t seq, const char *text), void *arg,
                  struct audit_verdict *verdict, struct err *err)
{
    *verdict = (struct audit_verdict){0};
    struct check check = {.on_finding = on_finding, .arg = arg, .verdict = verdict};
    struct db db;
    if (!audit_db_open_to_read(&db, path, err))
        return false;
    bool ok = db_run(&db, "BEGIN", err) && audit_db_anchors(&db, &check.anchors, err);
    if (ok) {
        begin(&check);
        ok = walk_segments(&check, &db, err);
    }
    if (ok)
        check_ends(&check);
    for (size_t i = 0; i < AUDIT_CHAINS; i++)
        memcpy(verdict->head[i], check.anchors.of[i].head_hash, sizeof verdict->head[i]);
    audit_rows_release(&check.rows);
    arena_release(&check.arena);
    db_close(&db);
    return ok;
}
