// Owns the text of a segment: what a kept row consists of, and the row put together again.
//
//     shared     [{"event":"call","tenant":"…", …}, …]
//     rows       [[7,"…time…",0,"…request…", …,17,100,200,"…hash…"], …]       0: which of `shared`
//     chained    PREV DIGEST [7,"…time…","…request…", …,17,100,200]           what is hashed: the hash of the row before,
//                                                                             the digest of what it shares, and its own
//
// So a row takes a third of what it says, to hash and to write, and the file stays readable for everybody: the view
// `audit` puts the parts together in SQL. draft.c makes segments of rows that wait, rows.c reads the rows of one.
#include "segment.h"
#include "base/scan.h"

// Valid JSON, whatever it says. False: it is no row. What stands between two parts is a comma and nothing else, so that
// nothing of it is left out when it is hashed again.
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

// As an object. `shared` begins with its comma.
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
