// Owns texts that are composed of parts of other texts.
#include "base/pieces.h"
#include "base/mem.h"
#include <stdlib.h>

// Bytes that are cheaper to copy than to refer to. This also bounds the parts of a text with many changes.
#define COPIED_MAX 1024
// A larger text becomes a part even if it is the only one, since its readers do not copy it as a whole.
#define FLAT_MAX ((size_t)64 << 10)

static void add(struct pieces *pieces, struct blob *owner, struct span text)
{
    if (pieces->count == pieces->room) {
        pieces->room = pieces->room ? pieces->room * 2 : 4;
        pieces->parts = mem_resize(pieces->parts, pieces->room * sizeof *pieces->parts);
    }
    pieces->parts[pieces->count++] = (struct blob_part){text, owner};
    pieces->len += text.len;
}

// Makes a part of the text in `tail`.
static void seal(struct pieces *pieces)
{
    if (!pieces->tail.len)
        return;
    struct blob *own = blob_take(&pieces->tail);
    add(pieces, own, blob_span(own));
}

void pieces_release(struct pieces *pieces)
{
    for (size_t i = 0; i < pieces->count; i++)
        blob_unref(pieces->parts[i].owner);
    free(pieces->parts);
    buf_release(&pieces->tail);
    *pieces = (struct pieces){0};
}

void pieces_share(struct pieces *pieces, struct blob *owner, struct span part)
{
    if (part.len <= COPIED_MAX) {
        buf_put_span(&pieces->tail, part);
        return;
    }
    seal(pieces);
    add(pieces, blob_ref(owner), part);
}

void pieces_share_all(struct pieces *pieces, struct blob *blob)
{
    for (size_t i = 0; i < blob_count(blob); i++)
        pieces_share(pieces, blob->at ? blob : blob->parts[i].owner, blob_part(blob, i));
}

struct blob *pieces_take(struct pieces *pieces)
{
    if (!pieces->count && pieces->tail.len <= FLAT_MAX)
        return blob_take(&pieces->tail);
    seal(pieces);
    struct blob *blob = mem_new(struct blob);
    *blob = (struct blob){.refs = 1, .len = pieces->len, .parts = pieces->parts, .part_count = pieces->count};
    *pieces = (struct pieces){0};
    return blob;
}
