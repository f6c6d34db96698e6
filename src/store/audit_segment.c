// Owns the text of segments: rows chained and put together for the database, and taken apart again.
//
//     shared     [{"event":"call","tenant":"…", …}, …]
//     rows       [{"seq":7,"time":"…","shared":0,"request":"…", …,"hash":"…"}, …]
//     chained    PREV DIGEST {"seq":7,"time":"…","request":"…", …}     what is hashed: the hash of the row before, the
//                                                                      digest of what it shares, and its own members
//
// A row names by its number what it shares with others, and that stands in its place when the row is read. So a row takes
// half of what it says, to hash and to write, and the file stays readable for everybody: the view `audit` does the same
// in SQL.
#include "audit_segment.h"
#include "base/mem.h"
#include <stdlib.h>

enum { SEGMENT_ROWS = 256, SEGMENT_BYTES = 128 << 10 };

static const char seq_key[] = "{\"seq\":", time_key[] = ",\"time\":\"", shared_key[] = ",\"shared\":";
#define PUT(out, text) buf_put(out, text, sizeof text - 1)

// ---- writing --------------------------------------------------------------------------------

void audit_draft_start(struct audit_draft *draft, const struct audit_batch *batch)
{
    draft->batch = batch;
    draft->next = draft->own = 0;
    if (draft->place_room < batch->shared_count) {
        draft->place_room = batch->shared_count;
        draft->places = mem_resize(draft->places, draft->place_room * sizeof *draft->places);
    }
    for (size_t i = 0; i < batch->shared_count; i++)
        draft->places[i] = (struct audit_draft_place){0};
}

// Its number in the segment; the first row that needs it puts it there.
static size_t number_of(struct audit_draft *draft, size_t which, int64_t segment)
{
    struct audit_draft_place *place = &draft->places[which];
    if (place->segment == segment)
        return place->number;
    place->segment = segment;
    place->number = draft->shared_count++;
    buf_put_text(&draft->shared, place->number ? ",\n" : "[");
    size_t start = draft->shared.len;
    buf_put_char(&draft->shared, '{');
    buf_put_span(&draft->shared, span_after(audit_batch_shared(draft->batch, which), 1));  // without its comma
    buf_put_char(&draft->shared, '}');
    audit_digest(span_after(buf_span(&draft->shared), start), place->digest);
    return place->number;
}

static void put_place(const struct audit_draft *draft, int64_t seq, struct buf *out)
{
    PUT(out, seq_key);
    buf_put_int(out, seq);
    PUT(out, time_key);
    buf_put(out, draft->stamp, AUDIT_ROW_STAMP_CHARS);
    buf_put_char(out, '"');
}

static void put_row(struct audit_draft *draft, size_t number, int64_t seq, char head[AUDIT_HASH_CHARS + 1],
                    struct buf *lines)
{
    const struct audit_waiting *waiting = &draft->batch->at[draft->next];
    struct span own = span_make(draft->batch->own.at + draft->own, waiting->own_len);
    char hash[AUDIT_HASH_CHARS + 1];
    if (!draft->stamp[0] || waiting->time_ms != draft->stamped_ms)
        audit_row_stamp(draft->stamped_ms = waiting->time_ms, draft->stamp);
    buf_clear(&draft->chained);
    buf_put(&draft->chained, head, AUDIT_HASH_CHARS);
    buf_put(&draft->chained, draft->places[waiting->shared].digest, AUDIT_HASH_CHARS);
    size_t start = draft->chained.len;
    put_place(draft, seq, &draft->chained);
    struct span place = span_after(buf_span(&draft->chained), start);
    buf_put_span(&draft->rows, place);
    PUT(&draft->rows, shared_key);
    buf_put_int(&draft->rows, (int64_t)number);
    if (lines) {
        buf_put_span(lines, place);
        buf_put_span(lines, audit_batch_shared(draft->batch, waiting->shared));
    }
    buf_put_span(&draft->chained, own);
    buf_put_char(&draft->chained, '}');
    audit_digest(buf_span(&draft->chained), hash);
    buf_put_span(&draft->rows, own);
    audit_row_end(NULL, hash, &draft->rows);
    if (lines) {
        buf_put_span(lines, own);
        audit_row_end(head, hash, lines);
        buf_put_char(lines, '\n');
    }
    memcpy(head, hash, sizeof hash);
}

static void add_row(struct audit_draft *draft, int64_t seq, char head[AUDIT_HASH_CHARS + 1], struct buf *lines,
                    struct audit_segment *segment)
{
    const struct audit_waiting *waiting = &draft->batch->at[draft->next];
    buf_put_text(&draft->rows, draft->rows.len ? ",\n" : "[");
    put_row(draft, number_of(draft, waiting->shared, segment->first), seq, head, lines);
    segment->last = seq;
    segment->since_ms = waiting->time_ms < segment->since_ms ? waiting->time_ms : segment->since_ms;
    segment->until_ms = waiting->time_ms > segment->until_ms ? waiting->time_ms : segment->until_ms;
    draft->own += waiting->own_len;
    draft->next++;
}

bool audit_draft_next(struct audit_draft *draft, int64_t *seq, char head[AUDIT_HASH_CHARS + 1], struct buf *lines,
                      struct audit_segment *segment)
{
    if (draft->next == draft->batch->count)
        return false;
    memcpy(draft->prev, head, sizeof draft->prev);
    buf_clear(&draft->rows);
    buf_clear(&draft->shared);
    draft->shared_count = 0;
    *segment = (struct audit_segment){.first = *seq + 1, .since_ms = INT64_MAX, .until_ms = INT64_MIN};
    for (int i = 0;
         i < SEGMENT_ROWS && draft->next < draft->batch->count && draft->rows.len + draft->shared.len < SEGMENT_BYTES;
         i++)
        add_row(draft, ++*seq, head, lines, segment);
    buf_put_char(&draft->rows, ']');
    buf_put_char(&draft->shared, ']');
    segment->prev = span_make(draft->prev, AUDIT_HASH_CHARS);
    segment->shared = buf_span(&draft->shared);
    segment->rows = buf_span(&draft->rows);
    return true;
}

void audit_draft_release(struct audit_draft *draft)
{
    free(draft->places);
    buf_release(&draft->rows);
    buf_release(&draft->shared);
    buf_release(&draft->chained);
    *draft = (struct audit_draft){0};
}

// ---- reading --------------------------------------------------------------------------------

static bool has_members(struct span object)
{
    struct span key, value;
    struct scan_walk walk = scan_walk(object);
    return scan_is_object(object) && scan_member(&walk, &key, &value);
}

static bool open_shared(struct audit_rows *rows, struct span text)
{
    struct span all, one;
    rows->shared_count = 0;
    if (!scan_document(text, false, &all, &(struct err){0}) || !scan_is_array(all))
        return false;
    for (struct scan_walk walk = scan_walk(all); scan_element(&walk, &one);) {
        if (rows->shared_count == rows->shared_room) {
            rows->shared_room = rows->shared_room ? rows->shared_room * 2 : 16;
            rows->shared = mem_resize(rows->shared, rows->shared_room * sizeof *rows->shared);
        }
        rows->shared[rows->shared_count++] = has_members(one) ? one : (struct span){0};
    }
    return true;
}

bool audit_rows_open(struct audit_rows *rows, const struct audit_segment *segment)
{
    struct span all;
    rows->walk = scan_walk(span_of("[]"));
    if (!open_shared(rows, segment->shared) || !scan_document(segment->rows, false, &all, &(struct err){0}) ||
        !scan_is_array(all))
        return false;
    rows->walk = scan_walk(all);
    return true;
}

// Where `shared` begins, where it ends, and its number; it is nowhere else and not spelled otherwise.
static bool find_number(struct span kept, size_t *from, size_t *to, uint64_t *number)
{
    size_t at = sizeof seq_key - 1;
    while (at < kept.len && kept.at[at] >= '0' && kept.at[at] <= '9')
        at++;
    *from = at + sizeof time_key - 1 + AUDIT_ROW_STAMP_CHARS + 1;
    if (!span_starts(kept, seq_key) || !span_starts(span_after(kept, at), time_key) ||
        !span_starts(span_after(kept, *from), shared_key))
        return false;
    size_t digits = *to = *from + sizeof shared_key - 1;
    while (*to < kept.len && kept.at[*to] >= '0' && kept.at[*to] <= '9')
        ++*to;
    return span_to_u64(span_make(kept.at + digits, *to - digits), number);
}

bool audit_rows_next(struct audit_rows *rows, struct span *whole)
{
    struct span kept;
    size_t from, to;
    uint64_t number;
    *whole = (struct span){0};
    if (!scan_element(&rows->walk, &kept))
        return false;
    if (!find_number(kept, &from, &to, &number) || number >= rows->shared_count || !rows->shared[number].len)
        return true;
    rows->place = span_make(kept.at, from);
    rows->with = rows->shared[number];
    rows->own = span_after(kept, to);
    buf_clear(&rows->whole);
    buf_put_span(&rows->whole, rows->place);
    buf_put_char(&rows->whole, ',');
    buf_put(&rows->whole, rows->with.at + 1, rows->with.len - 2);
    buf_put_span(&rows->whole, rows->own);
    *whole = buf_span(&rows->whole);
    return true;
}

void audit_rows_hash(struct audit_rows *rows, const char *prev, char hash[AUDIT_HASH_CHARS + 1])
{
    char digest[AUDIT_HASH_CHARS + 1];
    audit_digest(rows->with, digest);
    buf_clear(&rows->chained);
    buf_put_text(&rows->chained, prev);
    buf_put(&rows->chained, digest, AUDIT_HASH_CHARS);
    buf_put_span(&rows->chained, rows->place);
    buf_put(&rows->chained, rows->own.at, rows->own.len - AUDIT_ROW_END_CHARS);
    buf_put_char(&rows->chained, '}');
    audit_digest(buf_span(&rows->chained), hash);
}

void audit_rows_release(struct audit_rows *rows)
{
    free(rows->shared);
    buf_release(&rows->whole);
    buf_release(&rows->chained);
    *rows = (struct audit_rows){0};
}
