// Owns the wrapped form of resource URIs and template matching.
#include "mcp/uri.h"
#include <strings.h>

#define OURS "postern://"
#define APPS "ui://"

static struct span apps_or_ours(struct span uri)
{
    return span_starts(uri, OURS) ? span_after(uri, strlen(OURS)) : span_after(uri, strlen(APPS));
}

void uri_wrap(struct span key, struct span uri, struct buf *out)
{
    bool apps = span_starts(uri, APPS);
    buf_put_text(out, apps ? APPS : OURS);
    buf_put_span(out, key);
    buf_put_char(out, '/');
    buf_put_span(out, apps ? span_after(uri, strlen(APPS)) : uri);
}

bool uri_unwrap(struct span uri, struct span *key, struct buf *original)
{
    bool ours = span_starts(uri, OURS);
    if (!ours && !span_starts(uri, APPS))
        return false;
    struct span rest = apps_or_ours(uri);
    const char *slash = memchr(rest.at, '/', rest.len);
    if (!slash || slash == rest.at)
        return false;
    *key = span_make(rest.at, (size_t)(slash - rest.at));
    if (!ours)
        buf_put_text(original, APPS);
    buf_put_span(original, span_after(rest, key->len + 1));
    return true;
}

bool uri_is_web(struct span uri)
{
    return (uri.len > 7 && strncasecmp(uri.at, "http://", 7) == 0) ||
           (uri.len > 8 && strncasecmp(uri.at, "https://", 8) == 0);
}

bool uri_matches_template(struct span uri, struct span t)
{
    // Greedy matching that remembers one wildcard, as for file globs, without recursion.
    size_t u = 0, p = 0, back_u = 0, back_p = 0;
    bool back = false;
    while (u < uri.len) {
        if (p < t.len && t.at[p] == '{') {
            const char *close = memchr(t.at + p, '}', t.len - p);
            if (!close)
                return false;
            p = (size_t)(close - t.at) + 1;
            back = true;
            back_u = u;
            back_p = p;
        } else if (p < t.len && t.at[p] == uri.at[u]) {
            p++;
            u++;
        } else if (back) {
            p = back_p;
            u = ++back_u;
        } else {
            return false;
        }
    }
    while (p < t.len && t.at[p] == '{') {
        const char *close = memchr(t.at + p, '}', t.len - p);
        if (!close)
            return false;
        p = (size_t)(close - t.at) + 1;
    }
    return p == t.len;
}
