// One audit row: its members, its canonical JSON, its hash; and rows that wait to be written.
#ifndef STORE_AUDIT_ROW_H
#define STORE_AUDIT_ROW_H

#include "base/arena.h"
#include "base/buf.h"
#include "store/audit.h"

#define AUDIT_ROW_ZERO "0000000000000000000000000000000000000000000000000000000000000000"
#define AUDIT_ROW_STAMP_CHARS 24

enum audit_row_type { AUDIT_ROW_TEXT, AUDIT_ROW_WORD, AUDIT_ROW_INT, AUDIT_ROW_COUNT };

// Between `seq`, `time` and `hash`, in this order.
struct audit_row_field {
    const char *key;  // as it stands in the JSON: ,"name":
    size_t key_len;
    enum audit_row_type type;  // AUDIT_ROW_COUNT: a number that is left out when it is 0
    size_t offset;             // in struct audit_record
    const char *const *words;  // AUDIT_ROW_WORD, NULL at the end; word 0 may be "", which is absent
};

extern const struct audit_row_field audit_row_fields[];  // ends with a row without a key

struct span audit_row_name(const struct audit_row_field *field);
void audit_row_stamp(int64_t time_ms, char out[AUDIT_ROW_STAMP_CHARS + 1]);

// ---- rows that wait: JSON already, all but their place in the chain ---------------------------

struct audit_waiting {
    size_t len;  // of its text
    int64_t time_ms;
};

struct audit_batch {
    struct buf text;  // one after the other
    struct audit_waiting *at;
    size_t count, room;
    int64_t stamped_ms;  // the time whose stamp this is: the next row is often of the same millisecond
    char stamp[AUDIT_ROW_STAMP_CHARS + 1];
};

void audit_batch_add(struct audit_batch *batch, const struct audit_record *record, int64_t time_ms);
void audit_batch_clear(struct audit_batch *batch);
void audit_batch_release(struct audit_batch *batch);

// ---- rows of the chain ------------------------------------------------------------------------

// Appends the row as it is kept, and gives its hash. `scratch` is overwritten.
void audit_row_put(struct span prev, int64_t seq, struct span waiting, struct buf *out, struct buf *scratch,
                   char hash[AUDIT_HASH_CHARS + 1]);
// Appends a row that is kept as it is shown: with the hash of the row before.
void audit_row_show(struct span prev, struct span kept, struct buf *out);

// Takes a row that is kept apart: valid JSON, whatever it says. Its texts are in `kept` or in the arena; `prev` and `json`
// are left empty. False: it is no row.
bool audit_row_read(struct span kept, struct arena *arena, struct audit_row *row) MUST_CHECK;
// The hash that a row so read should have.
void audit_row_hash(struct span prev, struct span kept, struct buf *scratch, char hash[AUDIT_HASH_CHARS + 1]);

#endif
