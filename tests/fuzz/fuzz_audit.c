// Fuzzes rows of the audit: whatever a record says is read back, shown as JSON and hashes the same; and bytes that
// somebody put in the place of rows do no harm.
#include "../../src/store/audit_row.h"
#include "base/scan.h"
#include "fuzz.h"

#define PREV AUDIT_ROW_ZERO

static void check_shown(struct span kept)
{
    struct buf shown = {0};
    struct span value;
    audit_row_show(span_of(PREV), kept, &shown);
    REQUIRE(scan_document(buf_span(&shown), true, &value, &(struct err){0}));
    buf_release(&shown);
}

// What anybody may have written into the file.
static void read_strange(struct span text)
{
    struct span rows, kept;
    char hash[AUDIT_HASH_CHARS + 1];
    struct arena arena = {0};
    struct buf scratch = {0};
    if (!scan_document(text, false, &rows, &(struct err){0}) || !scan_is_array(rows))
        return;
    for (struct scan_walk walk = scan_walk(rows); scan_element(&walk, &kept);) {
        struct audit_row row;
        if (audit_row_read(kept, &arena, &row))
            audit_row_hash(span_of(PREV), kept, &scratch, hash);
    }
    arena_release(&arena);
    buf_release(&scratch);
}

static void write_and_read(struct span subject, struct span arguments)
{
    struct audit_batch batch = {0};
    struct buf kept = {0}, scratch = {0};
    struct arena arena = {0};
    struct audit_row row;
    char hash[AUDIT_HASH_CHARS + 1], again[AUDIT_HASH_CHARS + 1];
    struct audit_record record = {.subject = subject,
                                  .arguments = arguments,
                                  .status = AUDIT_GONE,
                                  .duration_us = 7,
                                  .count = (int64_t)subject.len};
    audit_batch_add(&batch, &record, 1800000000123);
    audit_row_put(span_of(PREV), 42, buf_span(&batch.text), &kept, &scratch, hash);
    REQUIRE(audit_row_read(buf_span(&kept), &arena, &row));
    REQUIRE(row.seq == 42 && row.record.status == AUDIT_GONE && row.record.duration_us == 7);
    REQUIRE(row.record.count == (int64_t)subject.len);
    REQUIRE(span_is(row.time, "2027-01-15T08:00:00.123Z"));
    if (scan_is_utf8(arguments) && arguments.len < 1024 &&
        !(arguments.len && memchr(arguments.at, '\0', arguments.len)))
        REQUIRE_SAME(row.record.arguments, arguments);
    audit_row_hash(span_of(PREV), buf_span(&kept), &scratch, again);
    REQUIRE(strcmp(hash, again) == 0);
    REQUIRE(span_is(row.hash, hash));
    check_shown(buf_span(&kept));
    audit_batch_release(&batch);
    buf_release(&kept);
    buf_release(&scratch);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct span input = span_make((const char *)bytes, len), first, second;
    fuzz_halves(input, &first, &second);
    write_and_read(first, second);
    read_strange(input);
    return 0;
}
