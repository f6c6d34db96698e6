// Owns the text of a segment: the elements of a stored row, and rebuilding the row.
//
//     shared     [{"event":"call","tenant":"…", …}, …]
//     rows       [[7,"…time…",0,"…request…", …,17,100,200,"…hash…"], …]       0: which of `shared`
//     chained    PREV DIGEST [7,"…time…","…request…", …,17,100,200]           the input of the hash: the previous hash,
//                                                                             the digest of the shared members, the own members
//
// So hashing and writing a row costs a third of its full text, and the file stays readable: the view `audit` combines the
// parts in SQL. draft.c makes segments of waiting rows, rows.c reads the rows of a segment.
#include "segment.h"
#include "base/scan.h"

// The input is valid JSON, but may have any content. False: it is not a row. Only a comma may be between two parts, so that
// the hash covers every byte.
bool audit_segment_split(struct span kept, struct audit_parts *parts)
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

// Appends the row as an object. `shared` begins with a comma.
void audit_segment_put_row(const struct audit_parts *parts, struct span shared, struct buf *out)
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
