// Owns protected resources: the URLs of their metadata (RFC 9728), parsing these, and which servers a resource covers.
#include "document.h"
#include "scope.h"
#include "url.h"

size_t oauth_resource_urls(const char *server_url, struct arena *arena, const char *out[OAUTH_URLS_MAX])
{
    const struct span place = span_of("/.well-known/oauth-protected-resource");
    struct oauth_url url;
    size_t count = 0;
    if (!oauth_url_parse(server_url, &url))
        return 0;
    if (url.path.len > 1 || url.query.len) {
        struct span rest = {url.path.at, url.path.len > 1 ? url.path.len : 0};
        struct span mark = url.query.len ? span_of("?") : (struct span){0};
        const struct span parts[] = {url.origin, place, rest, mark, url.query};
        count = oauth_url_add(out, count, arena, parts);
    }
    return oauth_url_add(out, count, arena, (const struct span[]){url.origin, place, {0}, {0}, {0}});
}

bool oauth_resource_covers(const char *resource, const char *server_url)
{
    struct oauth_url a, b;
    if (!oauth_url_parse(resource, &a) || !oauth_url_parse(server_url, &b) ||
        !oauth_url_same_origin(resource, server_url))
        return false;
    if (a.query.len && !span_equal(a.query, b.query))
        return false;
    struct span parent = a.path, path = b.path;
    if (parent.len && parent.at[parent.len - 1] == '/')
        parent.len--;
    if (path.len < parent.len || (parent.len && memcmp(path.at, parent.at, parent.len) != 0))
        return false;
    return path.len == parent.len || path.at[parent.len] == '/';
}

bool oauth_resource_parse(struct span text, const char *server_url, struct arena *arena, struct oauth_resource *out,
                          struct err *err)
{
    *out = (struct oauth_resource){0};
    json_t *tree = oauth_document_parse(text, "protected resource metadata", err), *item;
    if (!tree)
        return false;
    const char *resource = oauth_document_string(tree, "resource");
    bool ok = false;
    size_t i;
    if (!resource)
        (void)err_set(err, ERR_UPSTREAM_INVALID, "protected resource metadata: \"resource\" is missing");
    else if (!oauth_resource_covers(resource, server_url))
        (void)err_set(err, ERR_UPSTREAM_INVALID,
                      "protected resource metadata are for another resource: they say \"%.200s\", the server is %.200s",
                      resource, server_url);
    else
        ok = true;
    if (ok) {
        out->resource = arena_copy(arena, span_of(resource));
        out->scope = oauth_scope_join(json_object_get(tree, "scopes_supported"), arena);
        json_array_foreach(json_object_get(tree, "authorization_servers"), i, item) {
            const char *server = json_string_value(item);
            if (server && oauth_url_secure(server) && out->server_count < OAUTH_SERVERS_MAX)
                out->servers[out->server_count++] = arena_copy(arena, span_of(server));
        }
        if (!out->server_count)
            ok = err_set(err, ERR_UPSTREAM_INVALID,
                         "protected resource metadata do not name an authorization server with an https URL");
    }
    json_decref(tree);
    return ok;
}
