// Owns the checks of framing, Host, Origin and media types that libmicrohttpd 0.9.75 does not make.
//
// The library accepts Content-Length together with Transfer-Encoding, two Content-Lengths, "Name :", folded lines, NULs and
// bare LF. Each of them is rejected here, because a proxy in front of the gateway may parse such a request differently, and a
// second request could be smuggled past it.
#include "guard.h"
#include "base/field.h"
#include <inttypes.h>
#include <strings.h>

struct header_reading {
    struct guard_headers *out;
    struct err *err;
    const char *expected;  // where the next line must begin
    bool ok;
};

static struct span *slot(struct guard_headers *headers, struct span name)
{
    return field_is_named(name, "host")                   ? &headers->host
           : field_is_named(name, "origin")               ? &headers->origin
           : field_is_named(name, "accept")               ? &headers->accept[0]
           : field_is_named(name, "content-type")         ? &headers->content_type
           : field_is_named(name, "mcp-session-id")       ? &headers->session_id
           : field_is_named(name, "mcp-protocol-version") ? &headers->version
           : field_is_named(name, "last-event-id")        ? &headers->last_event_id
           : field_is_named(name, "content-length")       ? &headers->content_length
           : field_is_named(name, "transfer-encoding")    ? &headers->transfer_encoding
           : field_is_named(name, "authorization")        ? &headers->authorization
                                                          : NULL;
}

static enum MHD_Result refuse(struct header_reading *reading, const char *why, struct span name)
{
    name.len = name.len > 60 ? 60 : name.len;
    reading->ok = err_set(reading->err, ERR_BAD_FRAMING, "%s: \"%.*s\"", why, SPAN_ARG(name));
    return MHD_NO;
}

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *key, size_t key_len, const char *value,
                                 size_t value_len)
{
    (void)kind;
    struct header_reading *reading = arg;
    struct span name = span_make(key, key_len), text = span_make(value ? value : "", value ? value_len : 0);
    if (!field_is_name(name))
        return refuse(reading, "invalid header name", name);
    if (!field_is_value(text))
        return refuse(reading, "control character in a header", name);
    // libmicrohttpd parses in place, so the names and values of plain `Name: value CRLF` lines are adjacent in one buffer.
    // A bare LF, a NUL, a folded line or any other irregular line leaves a gap.
    if (key != reading->expected)
        return refuse(reading, "malformed line before this header", name);
    reading->expected = value ? value + value_len + 2 : NULL;
    struct span *known = slot(reading->out, name);
    if (!known)
        return MHD_YES;
    if (known == &reading->out->accept[0] && known->at)
        known = &reading->out->accept[1];  // a second Accept line adds to the list
    if (known->at)
        return refuse(reading, "header appears twice", name);
    *known = text;
    return MHD_YES;
}

// libmicrohttpd replaces CR and LF of the last header line and of the empty line by NULs. After a bare LF there are fewer.
static bool ends_plainly(const char *expected) { return expected && memcmp(expected - 2, "\0\0\0", 4) == 0; }

bool guard_size(struct MHD_Connection *connection, const struct config_front *config, struct err *err)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    int64_t max = config->limits->max_header;
    return (int64_t)info->header_size <= max ||
           err_set(err, ERR_HEADER_TOO_LARGE, "%zu bytes exceed limits.max_header (%" PRId64 ")", info->header_size,
                   max);
}

bool guard_read(struct MHD_Connection *connection, const struct guard_line *line, struct guard_headers *out,
                struct err *err)
{
    struct header_reading reading = {out, err, line->version + strlen(line->version) + 2, true};
    *out = (struct guard_headers){0};
    if (line->url != line->method + strlen(line->method) + 1)
        return err_set(err, ERR_BAD_FRAMING, "malformed request line");
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, on_header, &reading);
    if (!reading.ok)
        return false;
    if (!ends_plainly(reading.expected))
        return err_set(err, ERR_BAD_FRAMING, "the headers do not end in CRLF CRLF");
    if (!out->host.at)
        return err_set(err, ERR_BAD_FRAMING, "the Host header is missing");
    if (out->content_length.at && out->transfer_encoding.at)
        return err_set(err, ERR_BAD_FRAMING, "both Content-Length and Transfer-Encoding are present");
    if (out->transfer_encoding.at && !field_is_named(out->transfer_encoding, "chunked"))
        return err_set(err, ERR_BAD_FRAMING, "Transfer-Encoding is not chunked");
    for (size_t i = 0; out->content_length.at && i < out->content_length.len; i++)
        if (out->content_length.at[i] < '0' || out->content_length.at[i] > '9')
            return err_set(err, ERR_BAD_FRAMING, "Content-Length is not a number");
    return true;
}

// ---- Host and Origin ------------------------------------------------------------------------

// "host" of "host:port" and "[v6]:port".
static struct span host_part(struct span authority)
{
    if (authority.len && authority.at[0] == '[') {
        const char *close = memchr(authority.at, ']', authority.len);
        return close ? span_make(authority.at, (size_t)(close - authority.at) + 1) : authority;
    }
    const char *colon = memchr(authority.at, ':', authority.len);
    return colon ? span_make(authority.at, (size_t)(colon - authority.at)) : authority;
}

static bool is_loopback_name(struct span host)
{
    if (field_is_named(host, "localhost") || field_is_named(host, "[::1]"))
        return true;
    if (!span_starts(host, "127.") || host.len > 15)
        return false;
    for (size_t i = 0; i < host.len; i++)
        if (host.at[i] != '.' && (host.at[i] < '0' || host.at[i] > '9'))
            return false;
    return true;
}

// The scheme://authority of a URL.
static struct span origin_part(const char *url)
{
    const char *authority = strstr(url, "://");
    return authority ? span_make(url, strlen(url) - strlen(authority) + 3 + strcspn(authority + 3, "/?#"))
                     : span_of("");
}

static struct span authority_of(struct span origin)
{
    const char *at = memmem(origin.at, origin.len, "://", 3);
    return at ? span_after(origin, (size_t)(at - origin.at) + 3) : (struct span){"", 0};
}

static bool listed(char *const *names, struct span wanted)
{
    for (; names && *names; names++)
        if (field_is_named(wanted, *names))
            return true;
    return false;
}

bool guard_host(const struct config_front *config, const struct guard_headers *headers, struct err *err)
{
    struct span host = headers->host.at ? host_part(headers->host) : (struct span){"", 0};
    if (is_loopback_name(host) || listed(config->allowed_hosts, host) ||
        (headers->host.at && listed(config->allowed_hosts, headers->host)))
        return true;
    if (config->public_url && host.len) {
        struct span ours = host_part(authority_of(origin_part(config->public_url)));
        if (ours.len == host.len && strncasecmp(ours.at, host.at, host.len) == 0)
            return true;
    }
    return err_set(
        err, ERR_BAD_HOST,
        "Host \"%.*s\" is neither loopback nor the host of public_url; if callers may use it, add it to allowed_hosts",
        host.len > 100 ? 100 : (int)host.len, host.at);
}

bool guard_is_loopback(struct span host) { return is_loopback_name(host_part(host)); }

bool guard_origin(const struct config_front *config, const struct guard_headers *headers, struct err *err)
{
    struct span origin = headers->origin;
    if (!origin.at || listed(config->allowed_origins, origin))
        return true;
    struct span host = host_part(authority_of(origin));
    bool web = span_starts(origin, "http://") || span_starts(origin, "https://");
    if (web && is_loopback_name(host))
        return true;
    if (config->public_url) {
        struct span ours = origin_part(config->public_url);
        if (ours.len == origin.len && strncasecmp(ours.at, origin.at, origin.len) == 0)
            return true;
    }
    return err_set(err, ERR_BAD_ORIGIN,
                   "Origin \"%.*s\" is neither loopback nor the origin of public_url; if it may call the gateway, add "
                   "it to allowed_origins",
                   origin.len > 100 ? 100 : (int)origin.len, origin.at);
}

// ---- media types ----------------------------------------------------------------------------

static struct span media_type(struct span item)
{
    const char *semicolon = memchr(item.at, ';', item.len);
    if (semicolon)
        item.len = (size_t)(semicolon - item.at);
    while (item.len && (item.at[0] == ' ' || item.at[0] == '\t'))
        item = span_after(item, 1);
    while (item.len && (item.at[item.len - 1] == ' ' || item.at[item.len - 1] == '\t'))
        item.len--;
    return item;
}

static bool line_accepts(struct span accept, const char *type)
{
    size_t major = strcspn(type, "/") + 1;
    while (accept.len) {
        const char *comma = memchr(accept.at, ',', accept.len);
        struct span item = media_type(comma ? span_make(accept.at, (size_t)(comma - accept.at)) : accept);
        bool half = item.len == major + 1 && strncasecmp(item.at, type, major) == 0 && item.at[major] == '*';
        if (field_is_named(item, type) || field_is_named(item, "*/*") || half)
            return true;
        accept = comma ? span_after(accept, (size_t)(comma - accept.at) + 1) : (struct span){"", 0};
    }
    return false;
}

bool guard_accepts(const struct guard_headers *headers, const char *type)
{
    return line_accepts(headers->accept[0], type) || line_accepts(headers->accept[1], type);
}

bool guard_is_json(struct span content_type) { return field_is_named(media_type(content_type), "application/json"); }
