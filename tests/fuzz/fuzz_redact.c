// Fuzzes redaction: the output is valid and bounded, redacting it again changes nothing, and no secret member keeps its value.
#include "../../src/store/audit/redact.h"
#include "base/scan.h"
#include "fuzz.h"
#include <strings.h>

static struct redact *rules;

static void require_hidden(struct span object)
{
    struct scan_walk members = scan_walk(object);
    struct span raw, value;
    struct buf key = {0};
    while (scan_member(&members, &raw, &value)) {
        buf_clear(&key);
        scan_decode(raw, &key);
        if (strcasestr(buf_text(&key), "password"))
            REQUIRE(span_is(value, REDACT_MARK));
        else if (scan_is_object(value))
            require_hidden(value);
    }
    buf_release(&key);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static char *keys[] = {"Own-Word", NULL}, *pointers[] = {"/a/*/b", "/*/0", "/c~1d", NULL};
    struct span text = span_make((const char *)bytes, len), value, whole;
    struct err err;
    if (!rules)
        rules = redact_new(&(struct audit_redact){keys, pointers});
    if (!scan_document(text, false, &value, &err))
        return 0;
    struct buf once = {0}, twice = {0};
    redact_put(rules, value, &once);
    REQUIRE(once.len <= REDACT_MAX && scan_document(buf_span(&once), false, &whole, &err));
    REQUIRE(scan_is_object(whole) || scan_is_string(whole));
    if (scan_is_object(whole)) {
        require_hidden(whole);
        redact_put(rules, whole, &twice);
        REQUIRE_SAME(buf_span(&twice), whole);
    }
    buf_release(&once);
    buf_release(&twice);
    return 0;
}
