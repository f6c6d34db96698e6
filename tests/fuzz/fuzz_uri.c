// Fuzzes resource URIs: a wrapped URI unwraps to the original, unwrapping stays in bounds, and templates match as a slow matcher
// does. A URI has one canonical spelling, and a pattern made from a canonical URI counts as one that can match.
#include "../../auth/policy/uri_form.h"
#include "base/buf.h"
#include "fuzz.h"
#include "mcp/uri.h"

// Wraps and unwraps; keys have no slash and are not empty.
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

// An unwrapped URI wraps to the same text again, except for an inner "ui://", which has its own wrapped form.
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

// A canonical URI is its own canonical spelling; the canonical spelling of any other URI is canonical.
static void canonical(struct span uri)
{
    struct buf spelled = {0}, again = {0};
    bool is = policy_uri_is_canonical(uri);
    if (policy_uri_put_canonical(uri, false, &spelled)) {
        REQUIRE(policy_uri_is_canonical(buf_span(&spelled)));
        REQUIRE(policy_uri_put_canonical(buf_span(&spelled), false, &again));
        REQUIRE_SAME(buf_span(&again), buf_span(&spelled));
    } else {
        REQUIRE(!is && !spelled.len);
    }
    if (is) {
        REQUIRE_SAME(buf_span(&spelled), uri);
        REQUIRE(uri.len <= POLICY_URI_MAX && !memmem(uri.at, uri.len, "/../", 4) && !memmem(uri.at, uri.len, "%2F", 3));
    }
    buf_release(&spelled);
    buf_release(&again);
}

// Any part of a canonical URI may be replaced by a star or an expression: both can match a canonical URI.
static void with_hole(struct span uri, struct span where)
{
    size_t from = where.len ? (unsigned char)where.at[0] % (uri.len + 1) : 0;
    size_t to = from + (where.len > 1 ? (unsigned char)where.at[1] % (uri.len - from + 1) : 0);
    if (!policy_uri_is_canonical(uri) || uri.len + 3 > POLICY_URI_MAX || memchr(uri.at, '*', uri.len))
        return;
    struct buf pattern = {0}, expression = {0};
    buf_put(&pattern, uri.at, from);
    buf_put_char(&pattern, '*');
    buf_put_span(&pattern, span_after(uri, to));
    REQUIRE(policy_uri_pattern_can_match(buf_text(&pattern), false));
    buf_put(&expression, uri.at, from);
    buf_put_text(&expression, "{x}");
    buf_put_span(&expression, span_after(uri, to));
    bool brace = memmem(uri.at, uri.len, "%7B", 3) || memmem(uri.at, uri.len, "%7D", 3);
    REQUIRE(brace || policy_uri_template_is_canonical(buf_span(&expression)));
    buf_release(&pattern);
    buf_release(&expression);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct span first, second;
    fuzz_halves(span_make((const char *)bytes, len), &first, &second);
    round_trip(first, second);
    unwrap(first);
    unwrap(second);
    canonical(first);
    with_hole(first, second);
    bool slow = matches_slowly(first, second), fast = uri_matches_template(first, second);
    // A template with a brace that is never closed matches nothing.
    const char *open = second.len ? memrchr(second.at, '{', second.len) : NULL;
    const char *close = second.len ? memrchr(second.at, '}', second.len) : NULL;
    if (open && (!close || close < open))
        REQUIRE(!fast);
    else
        REQUIRE(slow == fast);
    REQUIRE(!uri_is_web(first) || first.at[0] == 'h' || first.at[0] == 'H');
    return 0;
}
