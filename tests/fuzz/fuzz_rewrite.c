// Fuzzes rewriting: valid JSON stays valid, replacing a value by itself changes no byte, refusing changes nothing.
#include "base/scan.h"
#include "fuzz.h"
#include "mcp/rewrite.h"

static const struct rewrite_rule rules[] = {
    {{"uri"}, 0},
    {{"task", "taskId"}, 1},
    {{"_meta", "ui", "resourceUri"}, 2},
    {{"content", "*", "uri"}, 3},
    {{"content", "*", "resource", "uri"}, 4},
    {{"messages", "*", "content", "uri"}, 5},
    {{"messages", "*", "content", "*", "resource", "uri"}, 6},
    {{"a", "*", "*", "b"}, 7},
};
#define RULES (sizeof rules / sizeof *rules)

static struct span whole;

static bool same(void *arg, int what, struct span raw, struct buf *out)
{
    REQUIRE(what >= 0 && (size_t)what < RULES && span_inside(raw, whole));
    ++*(size_t *)arg;
    buf_put_span(out, raw);
    return true;
}

static bool refuse(void *arg, int what, struct span raw, struct buf *out)
{
    (void)what;
    (void)raw;
    ++*(size_t *)arg;
    buf_put_text(out, "not used");
    return false;
}

static bool replace(void *arg, int what, struct span raw, struct buf *out)
{
    (void)raw;
    ++*(size_t *)arg;
    buf_printf(out, "{\"new\":%d}", what);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct span text = span_make((const char *)bytes, len), value;
    struct err err;
    if (!scan_document(text, false, &whole, &err))
        return 0;
    struct buf out = {0};
    size_t kept = 0, refused = 0, replaced = 0;
    if (rewrite_json(whole, rules, RULES, same, &kept, &out))
        REQUIRE_SAME(buf_span(&out), whole);
    else
        REQUIRE(kept == 0 && out.len == 0);
    buf_clear(&out);
    REQUIRE(!rewrite_json(whole, rules, RULES, refuse, &refused, &out));
    REQUIRE(out.len == 0 && refused == kept);
    REQUIRE(rewrite_json(whole, rules, RULES, replace, &replaced, &out) == (kept > 0));
    REQUIRE(replaced == kept);
    if (out.len)
        REQUIRE(scan_document(buf_span(&out), false, &value, &err) || strstr(err.detail, "too deeply"));
    buf_release(&out);
    return 0;
}
