// Fuzzes resource URIs: wrapping goes both ways, unwrapping stays in bounds, templates match as a slow matcher does.
#include "base/buf.h"
#include "fuzz.h"
#include "mcp/uri.h"

// Key and URI in, the same key and URI out; keys have no slash and are not empty.
static void round_trip(struct span key, struct span uri)
{
    if (!key.len || memchr(key.at, '/', key.len))
        return;
    struct buf wrapped = {0}, original = {0};
    struct span got;
    uri_wrap(key, uri, &wrapped);
    REQUIRE(uri_unwrap(buf_span(&wrapped), &got, &original));
    REQUIRE(span_inside(got, buf_span(&wrapped)));
    REQUIRE_SAME(got, key);
    REQUIRE_SAME(buf_span(&original), uri);
    buf_release(&wrapped);
    buf_release(&original);
}

// What unwraps wraps to the same again, but for an inner "ui://", which has a wrapped form of its own.
static void unwrap(struct span uri)
{
    struct buf original = {0}, again = {0};
    struct span key;
    if (uri_unwrap(uri, &key, &original)) {
        REQUIRE(key.len && span_inside(key, uri));
        uri_wrap(key, buf_span(&original), &again);
        if (!span_starts(uri, "postern://") || !span_starts(buf_span(&original), "ui://"))
            REQUIRE_SAME(buf_span(&again), uri);
    } else {
        REQUIRE(original.len == 0);
    }
    buf_release(&original);
    buf_release(&again);
}

// One row of the table for each part of the template: can[u] says whether the first u bytes are matched so far.
static bool matches_slowly(struct span uri, struct span pattern)
{
    bool *can = calloc(uri.len + 1, sizeof *can), ok = true;
    can[0] = true;
    for (size_t p = 0; ok && p < pattern.len; p++) {
        if (pattern.at[p] == '{') {
            const char *close = memchr(pattern.at + p, '}', pattern.len - p);
            ok = close != NULL;
            for (size_t u = 0; ok && u < uri.len; u++)
                can[u + 1] |= can[u];
            p = ok ? (size_t)(close - pattern.at) : p;
            continue;
        }
        for (size_t u = uri.len; u > 0; u--)
            can[u] = can[u - 1] && uri.at[u - 1] == pattern.at[p];
        can[0] = false;
    }
    ok = ok && can[uri.len];
    free(can);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct span first, second;
    fuzz_halves(span_make((const char *)bytes, len), &first, &second);
    round_trip(first, second);
    unwrap(first);
    unwrap(second);
    bool slow = matches_slowly(first, second), fast = uri_matches_template(first, second);
    // A brace that is never closed matches nothing; whether it is reached depends on the way taken.
    const char *open = second.len ? memrchr(second.at, '{', second.len) : NULL;
    const char *close = second.len ? memrchr(second.at, '}', second.len) : NULL;
    if (open && (!close || close < open))
        REQUIRE(!fast);
    else
        REQUIRE(slow == fast);
    REQUIRE(!uri_is_web(first) || first.at[0] == 'h' || first.at[0] == 'H');
    return 0;
}
