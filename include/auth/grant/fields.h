// Objects of texts, secrets and times as tables of their members: encoding, decoding, copying and letting go.
//
// Encoded: a version byte, then each member that is there as tag (1 byte) · length (4, big-endian) · bytes; times are 8
// bytes, big-endian. A tag is never given another meaning; an unknown one (of a later version) is passed over.
#ifndef AUTH_FIELDS_H
#define AUTH_FIELDS_H

#include "base/buf.h"
#include "base/err.h"
#include <stddef.h>

enum field_type { FIELD_END, FIELD_TEXT, FIELD_SECRET, FIELD_TIME };  // char *, struct secret, int64_t

struct field {
    enum field_type type;
    unsigned char tag;
    size_t offset;
};

void fields_encode(const struct field *table, const void *object, struct buf *out);
// `object` is zeroed by the caller. False: what was read so far is in it.
bool fields_decode(const struct field *table, struct span bytes, void *object, struct err *err) MUST_CHECK;
void fields_release(const struct field *table, void *object);  // wiped, freed, zeroed

#endif
