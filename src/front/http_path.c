// Owns the paths of the MCP endpoint and its profiles, and the URL by which callers reach them.
#include "face.h"

struct span http_path(const char *url)
{
    struct span path = span_of(url);
    while (path.len > 1 && path.at[path.len - 1] == '/')
        path.len--;
    return path;
}

bool http_path_is_endpoint(struct span path, const char *name, struct span *profile)
{
    size_t len = strlen(name);
    *profile = (struct span){0};
    if (span_is(path, name))
        return true;
    if (!span_starts(path, name) || path.at[len] != '/' || !gate_is_profile_name(span_after(path, len + 1)))
        return false;
    *profile = span_after(path, len + 1);
    return true;
}

void http_path_put(const struct http_exchange *exchange, struct buf *out)
{
    struct span profile = exchange->arrival.profile;
    buf_put_text(out, profile.at ? "/mcp/" : "/mcp");
    buf_put_span(out, profile);
}

void http_path_put_base(const struct http_exchange *exchange, struct buf *out)
{
    const char *url = exchange->face->config.public_url;
    size_t len = url ? strlen(url) : 0;
    if (len)
        buf_put(out, url, url[len - 1] == '/' ? len - 1 : len);
    else
        buf_printf(out, "%s://%.*s", exchange->face->tls ? "https" : "http", SPAN_ARG(exchange->host));
}
