// Objects of texts, secrets and times, described by tables of their members: encoding, decoding, copying and releasing.
//
// Encoded: a version byte, then each member that is present as tag (1 byte) · length (4, big-endian) · bytes; times are
// 8 bytes, big-endian. The meaning of a tag never changes; an unknown tag (of a later version) is ignored.
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
// The caller zeroes `object` first. After a failure it contains the members that were read until then.
bool fields_decode(const struct field *table, struct span bytes, void *object, struct err *err) MUST_CHECK;
void fields_release(const struct field *table, void *object);  // wiped, freed, zeroed

#endif
