// Owns reading a segment: its rows one by one, and the hash that each should have.
#include "rows.h"
#include "base/mem.h"
#include <stdlib.h>

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
    if (!audit_segment_split(kept, parts) || parts->shared >= rows->shared_count || !rows->shared[parts->shared].len)
        return true;
    struct span object = rows->shared[parts->shared];
    buf_clear(&rows->members);
    buf_put_char(&rows->members, ',');
    buf_put(&rows->members, object.at + 1, object.len - 2);
    buf_clear(&rows->whole);
    audit_segment_put_row(parts, buf_span(&rows->members), &rows->whole);
    *whole = buf_span(&rows->whole);
    return true;
}

void audit_rows_hash(struct audit_rows *rows, const char *prev, char hash[AUDIT_HASH_CHARS + 1])
{
    char digest[AUDIT_HASH_CHARS + 1];
    secret_digest_hex(rows->shared[rows->parts.shared], digest);
    buf_clear(&rows->chained);
    buf_put_text(&rows->chained, prev);
    buf_put(&rows->chained, digest, AUDIT_HASH_CHARS);
    buf_put_span(&rows->chained, rows->parts.place);
    buf_put_span(&rows->chained, rows->parts.own);
    buf_put_char(&rows->chained, ']');
    secret_digest_hex(buf_span(&rows->chained), hash);
}

void audit_rows_release(struct audit_rows *rows)
{
    free(rows->shared);
    buf_release(&rows->members);
    buf_release(&rows->whole);
    buf_release(&rows->chained);
    *rows = (struct audit_rows){0};
}
