// Fuzzes the JSON scanner against jansson, and checks that walking and encoding an accepted text give its parts and strings.
//
// The two may differ on: depth (the scanner stops at SCAN_DEPTH_MAX), numbers that jansson cannot represent, zero
// bytes in keys and lone surrogates (jansson refuses both), and zero bytes after a number (jansson does not see them).
// When lone surrogates are masked, jansson accepts the text as well.
#include "base/json.h"
#include "base/scan.h"
#include "fuzz.h"

static void compare(struct span text, bool ok, const struct err *err)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t problem;
    struct buf masked = {0};
    bool halves = scan_mask_halves(text, &masked);
    json_t *tree = json_loadb(text.at, text.len, flags, &problem);
    if (halves && ok) {
        REQUIRE(!tree);
        tree = json_loadb(masked.at, masked.len, flags, &problem);
        REQUIRE(!scan_mask_halves(buf_span(&masked), &(struct buf){0}));
    }
    buf_release(&masked);
    if (ok && !tree)
        REQUIRE(json_error_code(&problem) == json_error_numeric_overflow ||
                json_error_code(&problem) == json_error_null_byte_in_key);
    if (!ok && tree)
        REQUIRE(strstr(err->detail, "nested too deeply") || memchr(text.at, '\0', text.len));
    json_decref(tree);
}

// Every part of an accepted value lies within it and is itself accepted; a decoded string is encoded to the same value again.
static void walk(struct span value)
{
    struct scan_walk at = scan_walk(value);
    struct span key, item, part;
    struct err err;
    if (scan_is_string(value)) {
        struct buf plain = {0}, again = {0}, back = {0};
        scan_decode(value, &plain);
        scan_encode(buf_span(&plain), &again);
        REQUIRE(scan_document(buf_span(&again), true, &part, &err));
        scan_decode(buf_span(&again), &back);
        REQUIRE_SAME(buf_span(&plain), buf_span(&back));
        buf_clear(&back);
        scan_encode_lossy(buf_span(&plain), &back);
        REQUIRE(scan_is_utf8(buf_span(&back)) && scan_is_utf8(buf_span(&plain)) == !scan_has_half(buf_span(&plain)));
        if (!scan_has_half(buf_span(&plain)) && (!plain.len || !memchr(plain.at, '\0', plain.len)))
            REQUIRE_SAME(buf_span(&again), buf_span(&back));
        buf_release(&plain);
        buf_release(&again);
        buf_release(&back);
    } else if (scan_is_object(value)) {
        while (scan_member(&at, &key, &item)) {
            REQUIRE(span_inside(key, value) && span_inside(item, value) && scan_is_string(key));
            REQUIRE(scan_document(item, true, &part, &err));
            REQUIRE_SAME(item, part);
            walk(key);
            walk(item);
        }
    } else if (scan_is_array(value)) {
        while (scan_element(&at, &item)) {
            REQUIRE(span_inside(item, value));
            REQUIRE(scan_document(item, true, &part, &err));
            REQUIRE_SAME(item, part);
            walk(item);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct span text = span_make((const char *)bytes, len), value, same;
    struct err err = {0}, other = {0};
    bool ok = scan_document(text, true, &value, &err);
    bool lenient = scan_document(text, false, &same, &other);
    REQUIRE(!ok || lenient);
    REQUIRE(ok || err.code == ERR_PARSE);
    if (!ok && lenient)
        REQUIRE(strstr(err.detail, "duplicate key"));
    compare(text, ok, &err);
    if (ok) {
        REQUIRE(span_inside(value, text));
        REQUIRE_SAME(value, same);
        walk(value);
    }
    struct buf lossy = {0};
    scan_encode_lossy(text, &lossy);  // any bytes become a valid string
    REQUIRE(scan_document(buf_span(&lossy), true, &value, &err));
    buf_release(&lossy);
    return 0;
}
