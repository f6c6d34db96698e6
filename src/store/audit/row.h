// One audit row: its members and its canonical JSON.
#ifndef STORE_AUDIT_ROW_H
#define STORE_AUDIT_ROW_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/audit/audit.h"

#define AUDIT_ROW_ZERO "0000000000000000000000000000000000000000000000000000000000000000"
#define AUDIT_ROW_STAMP_CHARS 24

enum audit_row_type { AUDIT_ROW_TEXT, AUDIT_ROW_WORD, AUDIT_ROW_INT, AUDIT_ROW_COUNT };

// A member between `time` and `hash`; the table has them in this order.
struct audit_row_field {
    const char *key;  // as in the JSON text: ,"name":
    size_t key_len;
    enum audit_row_type type;  // AUDIT_ROW_COUNT: a number that is left out when it is 0
    size_t offset;             // in struct audit_record
    const char *const *words;  // AUDIT_ROW_WORD, NULL at the end; word 0 may be "", which means absent
};

enum { AUDIT_ROW_SHARED = 19, AUDIT_ROW_OWN = 6 };  // how many members are shared; how many follow as the row's own

extern const struct audit_row_field audit_row_fields[];  // ends with a row without a key

enum audit_chain audit_row_chain(const struct audit_record *record);  // the chain it belongs to
struct span audit_row_name(const struct audit_row_field *field);
size_t audit_row_text_max(const struct audit_row_field *field);  // longest text, in bytes
void audit_row_stamp(int64_t time_ms, char out[AUDIT_ROW_STAMP_CHARS + 1]);

void audit_row_put_shared(const struct audit_record *record, struct buf *out);
void audit_row_put_own(const struct audit_record *record, struct buf *out);
// Appends a whole row in its public form: with the hash of the previous row.
void audit_row_show(const char *prev, struct span whole, struct buf *out);

// Parses a whole row, which is valid JSON but may have any content. The texts point into `whole` or the arena; `prev` and
// `json` stay empty. False: it is not a row.
bool audit_row_read(struct span whole, struct arena *arena, struct audit_row *row) MUST_CHECK;

#endif
