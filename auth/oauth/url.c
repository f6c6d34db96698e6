// Owns the URLs of OAuth: parsing them, comparing their origins, and building those of well-known documents.
//
// URLs are compared and sent as received, and never rebuilt from their parts. The parser deliberately accepts less than
// RFC 3986: a character that two parsers could interpret differently is refused.
#include "url.h"
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

bool oauth_url_same_origin(const char *a, const char *b)
{
    struct oauth_url x, y;
    return oauth_url_parse(a, &x) && oauth_url_parse(b, &y) && x.https == y.https && x.port == y.port &&
           x.host.len == y.host.len && strncasecmp(x.host.at, y.host.at, x.host.len) == 0;
}

size_t oauth_url_add(const char *out[OAUTH_URLS_MAX], size_t count, struct arena *arena,
                     const struct span parts[OAUTH_URL_PARTS])
{
    struct buf text = {0};
    for (size_t i = 0; i < OAUTH_URL_PARTS; i++)
        buf_put_span(&text, parts[i]);
    if (text.len <= URL_MAX)
        out[count++] = arena_copy(arena, buf_span(&text));
    buf_release(&text);
    return count;
}
