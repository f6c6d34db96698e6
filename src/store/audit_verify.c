// Owns the check of the audit's chain: which row was changed, moved, added or taken out.
//
// Each row is held against its own hash, its prev against the row before it, its seq against its place, and both ends
// against the anchor. What one change breaks is told once: after a finding the check goes on from what the row says.
#include "audit_db.h"
#include "audit_schema.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    MOVED_MAX = 1000,  // how far from its place a row is looked for
    MOVED_ROWS = 100,  // and for how many rows: when more are wrong, that they are is enough
};

struct check {
    void (*on_finding)(void *arg, int64_t seq, const char *text);
    void *arg;
    struct audit_verdict *verdict;
    struct audit_anchor anchor;
    int64_t next_seq;
    // What the next row's prev may be: the hash the last row states, or the one it should have. Empty: not known.
    char stated[AUDIT_HASH_CHARS + 1], proper[AUDIT_HASH_CHARS + 1];
    int64_t kept_from;  // what the last retention row says; 0: there is none
    struct buf scratch;
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
}

// The place at which this row would be right; 0: there is none near.
static int64_t place_of(struct check *check, struct audit_row row)
{
    char hash[AUDIT_HASH_CHARS + 1];
    int64_t here = row.seq;
    for (int64_t off = 1; off <= MOVED_MAX; off++)
        for (int side = -1; side <= 1; side += 2) {
            row.seq = here + side * off;
            audit_row_hash(&row, &check->scratch, hash);
            if (row.seq > 0 && span_is(row.hash, hash))
                return row.seq;
        }
    return 0;
}

static void keep(char out[AUDIT_HASH_CHARS + 1], struct span hash)
{
    snprintf(out, AUDIT_HASH_CHARS + 1, "%.*s", SPAN_ARG(hash));
}

static void check_place(struct check *check, const struct audit_row *row)
{
    if (row->seq > check->next_seq) {
        missing(check, check->next_seq, row->seq - 1, check->verdict->rows == 1 ? " at the beginning" : "");
        check->stated[0] = check->proper[0] = '\0';
    } else if (row->seq < check->next_seq) {  // only before the first row: the table is in order
        tell(check, row->seq, "row %" PRId64 " is before the beginning: the first row kept is %" PRId64, row->seq,
             check->next_seq);
        check->stated[0] = check->proper[0] = '\0';
    }
}

static void check_row(struct check *check, const struct audit_row *row, const char *wrong)
{
    char hash[AUDIT_HASH_CHARS + 1];
    check_place(check, row);
    audit_row_hash(row, &check->scratch, hash);
    bool whole = !wrong && span_is(row->hash, hash);
    bool follows = !check->stated[0] || span_is(row->prev, check->stated) || span_is(row->prev, check->proper);
    bool search = !whole && !wrong && check->verdict->findings < MOVED_ROWS;
    int64_t place = !search ? 0 : place_of(check, *row);
    keep(check->stated, row->hash);
    keep(check->proper, span_of(hash));
    if (wrong)
        tell(check, row->seq, "row %" PRId64 " was changed: its %s is nothing that was ever written", row->seq, wrong);
    else if (place) {
        tell(check, row->seq, "row %" PRId64 " is out of order: it was written as row %" PRId64, row->seq, place);
        check->stated[0] = check->proper[0] = '\0';
    } else if (!whole)
        tell(check, row->seq, "row %" PRId64 " was changed: it does not match its hash", row->seq);
    else if (!follows)
        tell(check, row->seq, "row %" PRId64 " does not follow row %" PRId64 ": one of them was replaced", row->seq,
             row->seq - 1);
    check->next_seq = row->seq + 1;
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

static bool walk(struct check *check, sqlite3 *sqlite, const char *path, struct err *err)
{
    struct buf sql = {0};
    sqlite3_stmt *select = NULL;
    buf_put_text(&sql, "SELECT ");
    bool ok = audit_schema_columns(sqlite, path, &sql, err);
    buf_put_text(&sql, " FROM audit NOT INDEXED ORDER BY \"seq\"");
    int got = ok ? sqlite3_prepare_v2(sqlite, buf_text(&sql), -1, &select, NULL) : SQLITE_ERROR;
    buf_release(&sql);
    if (got != SQLITE_OK)
        return ok && audit_db_fail(sqlite, path, err);
    struct audit_verdict *verdict = check->verdict;
    while ((got = sqlite3_step(select)) == SQLITE_ROW) {
        struct audit_row row;
        const char *wrong = audit_db_row(select, &row);
        if (verdict->rows++ == 0)
            verdict->first_seq = row.seq;
        verdict->last_seq = row.seq;
        check_row(check, &row, wrong);
        if (row.record.event == AUDIT_RETENTION)
            check->kept_from = row.record.first_seq;
        if (row.record.event == AUDIT_GAP)
            verdict->dropped += row.record.count;
    }
    ok = got == SQLITE_DONE || audit_db_fail(sqlite, path, err);
    sqlite3_finalize(select);
    return ok;
}

bool audit_verify(const char *path, void (*on_finding)(void *arg, int64_t seq, const char *text), void *arg,
                  struct audit_verdict *verdict, struct err *err)
{
    *verdict = (struct audit_verdict){0};
    struct check check = {.on_finding = on_finding, .arg = arg, .verdict = verdict};
    sqlite3 *sqlite = audit_db_open_to_read(path, err);
    if (!sqlite)
        return false;
    bool ok = sqlite3_exec(sqlite, "BEGIN", NULL, NULL, NULL) == SQLITE_OK || audit_db_fail(sqlite, path, err);
    ok = ok && audit_db_anchor(sqlite, &check.anchor, err);
    if (ok) {
        check.next_seq = check.anchor.first_seq;
        memcpy(check.stated, check.anchor.first_prev, sizeof check.stated);
        memcpy(check.proper, check.anchor.first_prev, sizeof check.proper);
        ok = walk(&check, sqlite, path, err);
    }
    if (ok)
        check_ends(&check);
    memcpy(verdict->head, check.anchor.head_hash, sizeof verdict->head);
    buf_release(&check.scratch);
    sqlite3_close(sqlite);
    return ok;
}
