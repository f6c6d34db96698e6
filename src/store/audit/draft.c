// Owns the making of segments: numbers, chains and combines the rows of a batch that belong to one chain.
#include "draft.h"
#include "base/mem.h"
#include <stdlib.h>

enum { SEGMENT_ROWS = 256, SEGMENT_BYTES = 128 << 10 };

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

// The number of a shared text in the segment; the first row that needs the text appends it.
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
    buf_put_span(&draft->shared, span_after(audit_batch_shared(draft->batch, which), 1));  // without the leading comma
    buf_put_char(&draft->shared, '}');
    secret_digest_hex(span_after(buf_span(&draft->shared), start), place->digest);
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

// Appends the row after the row with the hash `prev`, and sets the hash of the row.
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
    secret_digest_hex(buf_span(chained), hash);
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
    if (!audit_segment_split(kept, &parts))
        return;  // cannot happen: the row was just made
    buf_clear(&draft->whole);
    audit_segment_put_row(&parts, audit_batch_shared(draft->batch, waiting->shared), &draft->whole);
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

// Skips to the next row of the chain, which must exist.
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
