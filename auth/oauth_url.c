// Owns what may be done with URLs of OAuth: taking them apart, where metadata are, which resource and issuer fit.
//
// URLs are compared and sent as the text they came in; nothing here writes one anew from its parts. The parser knows
// less than RFC 3986 on purpose: a character that two parsers could read in two ways is refused.
#include "auth/oauth.h"
#include <ctype.h>
#include <strings.h>

#define URL_MAX 2048

static bool host_char(char c) { return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_'; }

static bool same_text(struct span a, const char *text)
{
    return a.len == strlen(text) && strncasecmp(a.at, text, a.len) == 0;
}

static bool is_loopback(struct span host)
{
    if (same_text(host, "localhost") || span_is(host, "[::1]"))
        return true;
    if (!span_starts(host, "127."))
        return false;
    for (size_t i = 0; i < host.len; i++)
        if (!isdigit((unsigned char)host.at[i]) && host.at[i] != '.')
            return false;  // 127.example.com
    return true;
}

static bool take_host(const char **at, struct oauth_url *out)
{
    const char *start = *at, *p = start;
    if (*p == '[') {
        for (p++; isxdigit((unsigned char)*p) || *p == ':' || *p == '.'; p++)
            ;
        if (*p++ != ']' || p - start < 4)
            return false;
    } else {
        while (host_char(*p))
            p++;
    }
    out->host = span_make(start, (size_t)(p - start));
    out->port = out->https ? 443 : 80;
    if (*p == ':') {
        uint64_t port;
        const char *digits = ++p;
        while (isdigit((unsigned char)*p))
            p++;
        if (!span_to_u64(span_make(digits, (size_t)(p - digits)), &port) || !port || port > 65535)
            return false;
        out->port = (unsigned)port;
    }
    *at = p;
    return out->host.len > 0;
}

bool oauth_url_parse(const char *text, struct oauth_url *out)
{
    *out = (struct oauth_url){0};
    size_t len = text ? strlen(text) : 0;
    if (len == 0 || len > URL_MAX)
        return false;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f || strchr("\\<>\"^`{|}#", *c))
            return false;
    out->https = strncasecmp(text, "https://", 8) == 0;
    if (!out->https && strncasecmp(text, "http://", 7) != 0)
        return false;
    const char *at = text + (out->https ? 8 : 7);
    if (!take_host(&at, out) || (*at && *at != '/' && *at != '?'))
        return false;
    out->origin = span_make(text, (size_t)(at - text));
    out->loopback = is_loopback(out->host);
    size_t path = strcspn(at, "?");
    out->path = span_make(at, path);
    out->query = at[path] ? span_of(at + path + 1) : (struct span){0};
    return true;
}

bool oauth_url_secure(const char *text)
{
    struct oauth_url url;
    return oauth_url_parse(text, &url) && (url.https || url.loopback);
}

static bool same_origin(const struct oauth_url *a, const struct oauth_url *b)
{
    return a->https == b->https && a->port == b->port && a->host.len == b->host.len &&
           strncasecmp(a->host.at, b->host.at, a->host.len) == 0;
}

bool oauth_url_same_origin(const char *a, const char *b)
{
    struct oauth_url x, y;
    return oauth_url_parse(a, &x) && oauth_url_parse(b, &y) && same_origin(&x, &y);
}

static const char *join(struct arena *arena, struct span a, const char *b, struct span c, const char *d)
{
    struct buf text = {0};
    buf_put_span(&text, a);
    buf_put_text(&text, b);
    buf_put_span(&text, c);
    buf_put_text(&text, d);
    const char *out = arena_copy(arena, buf_span(&text));
    buf_release(&text);
    return out;
}

// Adds a place that is a URL; what was joined may be too long for one.
static size_t add_place(const char *out[OAUTH_URLS_MAX], size_t count, const char *place)
{
    if (strlen(place) > URL_MAX)
        return count;
    out[count] = place;
    return count + 1;
}

size_t oauth_resource_urls(const char *server_url, struct arena *arena, const char *out[OAUTH_URLS_MAX])
{
    static const char place[] = "/.well-known/oauth-protected-resource";
    struct oauth_url url;
    size_t count = 0;
    if (!oauth_url_parse(server_url, &url))
        return 0;
    if (url.path.len > 1 || url.query.len) {
        struct span rest = {url.path.at, url.path.len > 1 ? url.path.len : 0};
        const char *query = url.query.len ? join(arena, span_of("?"), "", url.query, "") : "";
        count = add_place(out, count, join(arena, url.origin, place, rest, query));
    }
    return add_place(out, count, join(arena, url.origin, place, (struct span){0}, ""));
}

size_t oauth_server_urls(const char *issuer, struct arena *arena, const char *out[OAUTH_URLS_MAX])
{
    struct oauth_url url;
    size_t count = 0;
    if (!oauth_url_parse(issuer, &url) || url.query.len)
        return 0;
    struct span path = url.path;
    if (path.len && path.at[path.len - 1] == '/')
        path.len--;
    count = add_place(out, count, join(arena, url.origin, "/.well-known/oauth-authorization-server", path, ""));
    count = add_place(out, count, join(arena, url.origin, "/.well-known/openid-configuration", path, ""));
    if (path.len)
        count = add_place(out, count, join(arena, url.origin, "", path, "/.well-known/openid-configuration"));
    return count;
}

bool oauth_resource_covers(const char *resource, const char *server_url)
{
    struct oauth_url a, b;
    if (!oauth_url_parse(resource, &a) || !oauth_url_parse(server_url, &b) || !same_origin(&a, &b))
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

bool oauth_issuer_matches(const char *expected, const char *found)
{
    struct oauth_url a, b;
    if (!expected || !found || !oauth_url_parse(expected, &a) || !oauth_url_parse(found, &b))
        return false;
    if (strcmp(expected, found) == 0)
        return true;
    bool bare = a.path.len <= 1 && b.path.len <= 1 && !a.query.len && !b.query.len;
    return bare && a.path.len != b.path.len && span_equal(a.origin, b.origin);
}

static bool is_domain(struct span host, const char *domain)
{
    size_t len = strlen(domain);
    if (domain[0] != '*')
        return host.len == len && strncasecmp(host.at, domain, len) == 0;
    return host.len > --len && strncasecmp(host.at + host.len - len, domain + 1, len) == 0;
}

bool oauth_issuer_allowed(const char *issuer, char *const *domains)
{
    struct oauth_url url;
    if (!domains)
        return true;
    if (!oauth_url_parse(issuer, &url))
        return false;
    for (; *domains; domains++)
        if (is_domain(url.host, *domains))
            return true;
    return false;
}

bool oauth_domain_valid(const char *domain)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
    if (strncmp(domain, "*.", 2) == 0)
        domain += 2;
    return *domain && *domain != '.' && domain[strspn(domain, letters)] == '\0' && !strstr(domain, "..");
}
