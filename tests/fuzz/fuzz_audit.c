// Fuzzes rows of the audit log: any record is read back as it was written, can be shown as JSON, and has the same hash.
// Arbitrary bytes in place of rows are read without harm.
#include "../../src/store/audit/draft.h"
#include "../../src/store/audit/rows.h"
#include "fuzz.h"

#define PREV AUDIT_ROW_ZERO

static void check_shown(struct span whole)
{
    struct buf shown = {0};
    struct span value;
    audit_row_show(PREV, whole, &shown);
    REQUIRE(scan_document(buf_span(&shown), true, &value, &(struct err){0}));
    buf_release(&shown);
}

// Reads a segment that the gateway did not write.
static void read_arbitrary(struct span shared, struct span texts)
{
    struct span whole, value;
    char hash[AUDIT_HASH_CHARS + 1];
    struct arena arena = {0};
    struct audit_rows rows = {0};
    (void)audit_rows_open(&rows, &(struct audit_segment){.shared = shared, .rows = texts});
    while (audit_rows_next(&rows, &whole)) {
        struct audit_row row;
        REQUIRE(!whole.len || scan_document(whole, false, &value, &(struct err){0}));
        if (audit_row_read(whole, &arena, &row))
            audit_rows_hash(&rows, PREV, hash);
    }
    audit_rows_release(&rows);
    arena_release(&arena);
}

static void write_and_read(struct span subject, struct span arguments)
{
    struct audit_batch batch = {0};
    struct audit_draft draft = {0};
    struct audit_segment segment;
    struct audit_rows rows = {0};
    struct arena arena = {0};
    struct audit_row row;
    struct span whole;
    int64_t seq = 41;
    char head[AUDIT_HASH_CHARS + 1] = PREV, again[AUDIT_HASH_CHARS + 1];
    struct audit_record record = {.subject = subject,
                                  .arguments = arguments,
                                  .status = AUDIT_GONE,
                                  .duration_us = 7,
                                  .count = (int64_t)subject.len};
    audit_batch_add(&batch, &record, 1800000000123);
    audit_draft_start(&draft, &batch, audit_row_chain(&record));
    REQUIRE(audit_draft_next(&draft, &seq, head, NULL, &segment) && seq == 42);
    REQUIRE(audit_rows_open(&rows, &segment) && audit_rows_next(&rows, &whole));
    REQUIRE(audit_row_read(whole, &arena, &row));
    REQUIRE(row.seq == 42 && row.record.status == AUDIT_GONE && row.record.duration_us == 7);
    REQUIRE(row.record.count == (int64_t)subject.len);
    REQUIRE(span_is(row.time, "2027-01-15T08:00:00.123Z"));
    if (scan_is_utf8(arguments) && arguments.len < 1024 &&
        !(arguments.len && memchr(arguments.at, '\0', arguments.len)))
        REQUIRE_SAME(row.record.arguments, arguments);
    audit_rows_hash(&rows, PREV, again);
    REQUIRE(strcmp(head, again) == 0);
    REQUIRE(span_is(row.hash, head));
    check_shown(whole);
    REQUIRE(!audit_rows_next(&rows, &whole) && !audit_draft_next(&draft, &seq, head, NULL, &segment));
    audit_rows_release(&rows);
    audit_draft_release(&draft);
    audit_batch_release(&batch);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct span input = span_make((const char *)bytes, len), first, second;
    fuzz_halves(input, &first, &second);
    write_and_read(first, second);
    read_arbitrary(first, second);
    return 0;
}
