// One audit row: its columns, its canonical JSON, its hash.
#ifndef STORE_AUDIT_ROW_H
#define STORE_AUDIT_ROW_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/audit.h"

#define AUDIT_ROW_ZERO "0000000000000000000000000000000000000000000000000000000000000000"
#define AUDIT_ROW_STAMP_CHARS 24
#define AUDIT_ROW_VERSION 2  // of the table

enum audit_row_type { AUDIT_ROW_TEXT, AUDIT_ROW_WORD, AUDIT_ROW_INT, AUDIT_ROW_COUNT };

// Between `seq`, `time` and `prev`, `hash`, in this order, in the table and in the JSON.
struct audit_row_field {
    const char *name;
    enum audit_row_type type;  // AUDIT_ROW_COUNT: a number that is left out when it is 0
    size_t offset;             // in struct audit_record
    const char *const *words;  // AUDIT_ROW_WORD, NULL at the end; word 0 may be "", which is absent
    // The first version of the table that has the column. Later ones are texts: being absent in the rows before, they
    // are not in the JSON of those either, so that old chains verify as they are.
    int since;
};

extern const struct audit_row_field audit_row_fields[];  // ends with a row without a name

// The copy's texts are in the arena, and cut to what they may have.
void audit_row_copy(struct arena *arena, const struct audit_record *from, struct audit_record *to);
void audit_row_clean(struct arena *arena, struct audit_record *record);  // texts are UTF-8 without NUL after this
bool audit_row_is_clean(struct span text);

void audit_row_stamp(int64_t time_ms, char out[AUDIT_ROW_STAMP_CHARS + 1]);
// prev and the canonical JSON, which is what is hashed.
void audit_row_chain(const struct audit_row *row, struct buf *out);
void audit_row_hash(const struct audit_row *row, struct buf *scratch, char out[AUDIT_HASH_CHARS + 1]);
void audit_row_json(const struct audit_row *row, struct buf *out);  // the whole row

#endif
