// Pieces compose one text from parts of shared blobs and from text of their own, so that a large message is passed on
// without being copied. A zeroed struct is empty.
#ifndef BASE_PIECES_H
#define BASE_PIECES_H

#include "base/blob.h"

struct pieces {
    struct blob_part *parts;
    size_t count, room;
    size_t len;       // of the parts
    struct buf tail;  // text of its own after them; bytes to be copied are appended here
};

void pieces_release(struct pieces *pieces);
// Appends a part of a blob that is one run of bytes, and keeps a reference to it. A part too short to be worth it is
// copied.
void pieces_share(struct pieces *pieces, struct blob *owner, struct span part);
void pieces_share_all(struct pieces *pieces, struct blob *blob);  // appends a whole blob, in parts or not
// The text as a blob, in one run of bytes if it is small and shares nothing; the pieces are empty again.
struct blob *pieces_take(struct pieces *pieces);

static inline size_t pieces_len(const struct pieces *pieces) { return pieces->len + pieces->tail.len; }

#endif
