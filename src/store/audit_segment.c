// Owns the text of segments: rows chained and put together for the database, and taken apart again.
//
//     shared     [{"event":"call","tenant":"…", …}, …]
//     rows       [[7,"…time…",0,"…request…", …,17,100,200,"…hash…"], …]       0: which of `shared`
//     chained    PREV DIGEST [7,"…time…","…request…", …,17,100,200]           what is hashed: the hash of the row before,
//                                                                             the digest of what it shares, and its own
//
// So a row takes a third of what it says, to hash and to write, and the file stays readable for everybody: the view
// `audit` puts the parts together in SQL.
#include "audit_segment.h"
#include "base/mem.h"
#include <stdlib.h>

enum { SEGMENT_ROWS = 256, SEGMENT_BYTES = 128 << 10 };

// ---- rows that are kept ---------------------------------------------------------------------

// Valid JSON, whatever it says. False: it is no row. What stands between two parts is a comma and nothing else, so that
// nothing of it is left out when it is hashed again.
static bool split(struct span kept, struct audit_parts *parts)
{
    struct span all[AUDIT_ELEMENTS], more;
    const char *end = kept.at + kept.len - 1;
    if (!scan_is_array(kept))
        return false;
    struct scan_walk walk = scan_walk(kept);
    for (size_t i = 0; i < AUDIT_ELEMENTS; i++)
        if (!scan_element(&walk, &all[i]))
            return false;
    struct span time = all[1], number = all[AUDIT_BEFORE_OWN - 1], hash = all[AUDIT_ELEMENTS - 1];
    if (scan_element(&walk, &more) || number.at != time.at + time.len + 1 || hash.at + hash.len != end ||
        hash.at[-1] != ',' || !span_to_u64(number, &parts->shared))
        return false;
    parts->place = span_make(kept.at, (size_t)(time.at + time.len - kept.at));
    parts->seq = all[0];
    parts->time = time;
    parts->own = span_make(number.at + number.len, (size_t)(hash.at - 1 - number.at) - number.len);
    memcpy(parts->fields, all + AUDIT_BEFORE_OWN, sizeof parts->fields);
    parts->hash = hash;
    return true;
}

// As an object. `shared` begins with its comma.
static void put_whole(const struct audit_parts *parts, struct span shared, struct buf *out)
{
    buf_put_text(out, "{\"seq\":");
    buf_put_span(out, parts->seq);
    buf_put_text(out, ",\"time\":");
    buf_put_span(out, parts->time);
    buf_put_span(out, shared);
    for (size_t i = 0; i < AUDIT_ROW_OWN; i++) {
        const struct audit_row_field *field = &audit_row_fields[AUDIT_ROW_SHARED + i];
        if (span_is(parts->fields[i], "null"))
            continue;
        buf_put(out, field->key, field->key_len);
        buf_put_span(out, parts->fields[i]);
    }
    buf_put_text(out, ",\"hash\":");
    buf_put_span(out, parts->hash);
    buf_put_char(out, '}');
}

// ---- writing --------------------------------------------------------------------------------

void audit_draft_start(struct audit_draft *draft, const struct audit_batch *batch, enum audit_chain chain)
{
    draft->batch = batch;
    draft->chain = chain;
    draft->left = batch->of_chain[chain];
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
    buf_put_char(out, '[');
    buf_put_int(out, seq);
    buf_put(out, ",\"", 2);
    buf_put(out, draft->stamp, AUDIT_ROW_STAMP_CHARS);
    buf_put_char(out, '"');
}

// After the row with the hash `prev`; gives its own.
static void put_row(struct audit_draft *draft, size_t number, int64_t seq, const char *prev,
                    char hash[AUDIT_HASH_CHARS + 1])
{
    const struct audit_waiting *waiting = &draft->batch->at[draft->next];
    struct span own = span_make(draft->batch->own.at + draft->own, waiting->own_len);
    struct buf *chained = &draft->chained, *rows = &draft->rows;
    if (!draft->stamp[0] || waiting->time_ms != draft->stamped_ms)
        audit_row_stamp(draft->stamped_ms = waiting->time_ms, draft->stamp);
    buf_clear(chained);
    buf_put(chained, prev, AUDIT_HASH_CHARS);
    buf_put(chained, draft->places[waiting->shared].digest, AUDIT_HASH_CHARS);
    put_place(draft, seq, chained);
    buf_put(rows, chained->at + (size_t)2 * AUDIT_HASH_CHARS, chained->len - (size_t)2 * AUDIT_HASH_CHARS);
    buf_put_span(chained, own);
    buf_put_char(chained, ']');
    audit_digest(buf_span(chained), hash);
    buf_put_char(rows, ',');
    buf_put_int(rows, (int64_t)number);
    buf_put_span(rows, own);
    buf_put(rows, ",\"", 2);
    buf_put(rows, hash, AUDIT_HASH_CHARS);
    buf_put(rows, "\"]", 2);
}

static void put_line(struct audit_draft *draft, const char *prev, struct span kept, struct buf *lines)
{
    const struct audit_waiting *waiting = &draft->batch->at[draft->next];
    struct audit_parts parts;
    if (!split(kept, &parts))
        return;  // never: it was just put together
    buf_clear(&draft->whole);
    put_whole(&parts, audit_batch_shared(draft->batch, waiting->shared), &draft->whole);
    audit_row_show(prev, buf_span(&draft->whole), lines);
    buf_put_char(lines, '\n');
}

static void add_row(struct audit_draft *draft, int64_t seq, char head[AUDIT_HASH_CHARS + 1], struct buf *lines,
                    struct audit_segment *segment)
{
    const struct audit_waiting *waiting = &draft->batch->at[draft->next];
    char hash[AUDIT_HASH_CHARS + 1];
    buf_put_text(&draft->rows, draft->rows.len ? ",\n" : "[");
    size_t start = draft->rows.len;
    put_row(draft, number_of(draft, waiting->shared, segment->first), seq, head, hash);
    if (lines)
        put_line(draft, head, span_after(buf_span(&draft->rows), start), lines);
    memcpy(head, hash, sizeof hash);
    segment->last = seq;
    segment->since_ms = waiting->time_ms < segment->since_ms ? waiting->time_ms : segment->since_ms;
    segment->until_ms = waiting->time_ms > segment->until_ms ? waiting->time_ms : segment->until_ms;
    draft->own += waiting->own_len;
    draft->next++;
    draft->left--;
}

// To the next row of the chain; there is one.
static void skip_others(struct audit_draft *draft)
{
    const struct audit_waiting *waiting = &draft->batch->at[draft->next];
    for (; waiting->chain != draft->chain; waiting++, draft->next++)
        draft->own += waiting->own_len;
}

bool audit_draft_next(struct audit_draft *draft, int64_t *seq, char head[AUDIT_HASH_CHARS + 1], struct buf *lines,
                      struct audit_segment *segment)
{
    if (!draft->left)
        return false;
    memcpy(draft->prev, head, sizeof draft->prev);
    buf_clear(&draft->rows);
    buf_clear(&draft->shared);
    draft->shared_count = 0;
    *segment =
        (struct audit_segment){.first = *seq + 1, .chain = draft->chain, .since_ms = INT64_MAX, .until_ms = INT64_MIN};
    for (int i = 0; i < SEGMENT_ROWS && draft->left && draft->rows.len + draft->shared.len < SEGMENT_BYTES; i++) {
        skip_others(draft);
        add_row(draft, ++*seq, head, lines, segment);
    }
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
    buf_release(&draft->whole);
    *draft = (struct audit_draft){0};
}

// ---- reading --------------------------------------------------------------------------------

static bool has_members(struct span object)
{
    struct span key, value;
    if (!scan_is_object(object))
        return false;
    struct scan_walk walk = scan_walk(object);
    return scan_member(&walk, &key, &value);
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

bool audit_rows_next(struct audit_rows *rows, struct span *whole)
{
    struct span kept;
    struct audit_parts *parts = &rows->parts;
    *whole = (struct span){0};
    if (!scan_element(&rows->walk, &kept))
        return false;
    if (!split(kept, parts) || parts->shared >= rows->shared_count || !rows->shared[parts->shared].len)
        return true;
    struct span object = rows->shared[parts->shared];
    buf_clear(&rows->members);
    buf_put_char(&rows->members, ',');
    buf_put(&rows->members, object.at + 1, object.len - 2);
    buf_clear(&rows->whole);
    put_whole(parts, buf_span(&rows->members), &rows->whole);
    *whole = buf_span(&rows->whole);
    return true;
}

void audit_rows_hash(struct audit_rows *rows, const char *prev, char hash[AUDIT_HASH_CHARS + 1])
{
    char digest[AUDIT_HASH_CHARS + 1];
    audit_digest(rows->shared[rows->parts.shared], digest);
    buf_clear(&rows->chained);
    buf_put_text(&rows->chained, prev);
    buf_put(&rows->chained, digest, AUDIT_HASH_CHARS);
    buf_put_span(&rows->chained, rows->parts.place);
    buf_put_span(&rows->chained, rows->parts.own);
    buf_put_char(&rows->chained, ']');
    audit_digest(buf_span(&rows->chained), hash);
}

void audit_rows_release(struct audit_rows *rows)
{
    free(rows->shared);
    buf_release(&rows->members);
    buf_release(&rows->whole);
    buf_release(&rows->chained);
    *rows = (struct audit_rows){0};
}
