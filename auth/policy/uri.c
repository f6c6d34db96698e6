// Owns the canonical form of resource URIs: two spellings of one URI must not get two verdicts.
//
// Servers pass a URI to a lenient parser: it decodes escapes, resolves dot segments, merges slashes and ignores case. A rule
// compares text. So the policy accepts one spelling of every URI, and denies all others before it evaluates a rule.
// Canonical is:
//
//   all        lower-case scheme and host, upper-case hex digits, valid UTF-8 behind escapes, at most POLICY_URI_MAX bytes
//   characters raw or escaped as the table below says for each part of a URI, never both
//   path       no dot segments; no empty segments but a last one, outside file:
//   file:      file:///PATH and nothing else: no host, no query, no final slash, upper-case drive letters
//   web        http, https, ws, wss, ftp: a host and a path, addresses in their usual form, no default port
//   never      control characters, backslashes, user names, fragments, an escaped slash, an escape inside an escape (%2541)
//
// Patterns of rules and templates are texts with holes. They are rejected if no content of the holes could make them canonical.
// tests/unit/auth/policy/uri_test.c has the table of spellings; tests/e2e/policy/uris.test.mjs compares with three URL parsers.
#include "base/scan.h"
#include "uri_form.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <strings.h>

#define HOLE '\1'  // any run of characters
#define UNSURE (-2)

// Parts of a URI, as bits: after a hole, a character may belong to several.
enum { HOST = 1, PATH = 2, QUERY = 4, PORT = 8, PARTS = 4 };

// In addition to letters and digits. A character in neither column of a part is not allowed there.
static const struct {
    const char *raw, *escaped;
} spelling[PARTS] = {
    {"-._~!$&'()*+,;=", " \"#%<>?@[]^`{|}"},
    {"-._~!$&'()*+,;=:@/", " \"#%<>?[]^`{|}"},
    {"-._~!$&'()*,;=:@/?", " \"#%+<>[]^`{|}"},  // parsers of forms read a raw plus sign as a space
    {":[]", ""},
};

static const struct web {
    const char *scheme;
    unsigned port;
} webs[] = {{"http", 80}, {"https", 443}, {"ws", 80}, {"wss", 443}, {"ftp", 21}};

static const struct web *find_web(struct span scheme)
{
    for (size_t i = 0; i < sizeof webs / sizeof *webs; i++)
        if (span_is(scheme, webs[i].scheme))
            return &webs[i];
    return NULL;
}

static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_one_of(char c, const char *set) { return c && strchr(set, c); }
static char to_lower(char c) { return is_upper(c) ? (char)(c | 0x20) : c; }

static bool is_raw(char c, unsigned parts)
{
    if (is_lower(c) || is_digit(c))
        return true;
    if (is_upper(c))
        return parts & (PATH | QUERY);
    for (unsigned part = 0; part < PARTS; part++)
        if (parts >> part & 1 && is_one_of(c, spelling[part].raw))
            return true;
    return false;
}

static bool is_escaped(char c, unsigned parts)
{
    for (unsigned part = 0; part < PARTS; part++)
        if (parts >> part & 1 && is_one_of(c, spelling[part].escaped))
            return true;
    return false;
}

// ---- characters -----------------------------------------------------------------------------

static int hex(char c, bool any_case)
{
    return is_digit(c)                        ? c - '0'
           : c >= 'A' && c <= 'F'             ? c - 'A' + 10
           : any_case && c >= 'a' && c <= 'f' ? c - 'a' + 10
                                              : -1;
}

// The byte of the escape at `i`; -1: not an escape; UNSURE: a hole may make it one.
static int byte_at(struct span text, size_t i, bool any_case)
{
    if (i >= text.len || text.at[i] != '%')
        return -1;
    int value = 0;
    for (size_t k = i + 1; k <= i + 2; k++) {
        int digit = k < text.len ? hex(text.at[k], any_case) : -1;
        if (k < text.len && text.at[k] == HOLE)
            return UNSURE;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

// The length of the escaped character at `i`; 0 if it is not escaped in the canonical way.
static size_t escaped_len(struct span text, size_t i, unsigned parts)
{
    int first = byte_at(text, i, false), next;
    if (first == UNSURE)
        return 1;
    if (first < 0x80) {
        bool again =
            first == '%' && i + 4 < text.len && hex(text.at[i + 3], true) >= 0 && hex(text.at[i + 4], true) >= 0;
        return first > 0 && is_escaped((char)first, parts) && !again ? 3 : 0;
    }
    if (first < 0xC0)
        return memchr(text.at, HOLE, i) ? 3 : 0;  // a hole may end inside a character
    char bytes[4] = {(char)first};
    size_t count = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    for (size_t k = 1; k < count; k++) {
        if ((i + 3 * k < text.len && text.at[i + 3 * k] == HOLE) || (next = byte_at(text, i + 3 * k, false)) == UNSURE)
            return 3 * k;
        if (next < 0)
            return 0;
        bytes[k] = (char)next;
    }
    return scan_is_utf8(span_make(bytes, count)) ? 3 * count : 0;
}

static bool is_spelled(struct span text, unsigned parts)
{
    for (size_t i = 0, len; i < text.len; i += len) {
        char c = text.at[i];
        len = c == '%' ? escaped_len(text, i, parts) : c == HOLE || is_raw(c, parts);
        if (!len)
            return false;
    }
    return true;
}

// ---- parts ----------------------------------------------------------------------------------

// True without a dot segment and without an empty segment that ends before `strict`, except the last with `final`.
static bool has_sound_segments(struct span text, const char *separators, size_t strict, bool final)
{
    for (size_t i = 0, start = 0; i <= text.len; i++) {
        if (i < text.len && !is_one_of(text.at[i], separators))
            continue;
        struct span segment = span_make(text.at + start, i - start);
        start = i + 1;
        if (span_is(segment, ".") || span_is(segment, ".."))
            return false;
        if (!segment.len && i < strict && !(i == text.len && final))
            return false;
    }
    return true;
}

// True if the text can follow a hole that may end anywhere.
static bool is_sound_tail(struct span text)
{
    return is_spelled(text, HOST | PATH | QUERY | PORT) && has_sound_segments(text, "/?", 0, true);
}

static bool is_sound_query(struct span query)
{
    return is_spelled(query, QUERY) && has_sound_segments(query, "/?&=", 0, true);
}

// A path and its query.
static bool is_sound_path(struct span path)
{
    const char *mark = memchr(path.at, '?', path.len), *hole = memchr(path.at, HOLE, path.len);
    struct span query = mark ? span_after(path, (size_t)(mark - path.at) + 1) : span_make("", 0);
    bool empty = mark && !query.len && !(hole && hole < mark);  // a hole may contain the question mark of the query
    if (empty || !is_sound_query(query))
        return false;
    if (mark)
        path.len = (size_t)(mark - path.at);
    size_t known = hole && hole < path.at + path.len ? (size_t)(hole - path.at) : path.len;
    bool rooted = path.len && path.at[0] == '/';
    return is_spelled(span_make(path.at, known + (known < path.len)), PATH) &&
           is_spelled(span_after(path, known), PATH | QUERY) &&
           (!path.len || has_sound_segments(span_after(path, rooted), "/", known - rooted + 1, true));
}

static bool is_sound_file(struct span path)
{
    bool drive = path.len >= 3 && is_lower(path.at[1]) && path.at[2] == ':' && (path.len == 3 || path.at[3] == '/');
    struct span rest = span_after(path, 1);
    return path.len && path.at[0] == '/' && !drive && is_spelled(path, PATH) &&
           (!rest.len || has_sound_segments(rest, "/", rest.len + 1, false));
}

static bool is_sound_port(struct span port, const struct web *web)
{
    uint64_t number;
    return span_to_u64(port, &number) && number && number <= 65535 && port.at[0] != '0' &&
           !(web && number == web->port);
}

static bool is_sound_ipv6(struct span text)
{
    struct in6_addr address;
    char given[INET6_ADDRSTRLEN], usual[INET6_ADDRSTRLEN];
    if (text.len >= sizeof given)
        return false;
    memcpy(given, text.at, text.len);
    given[text.len] = '\0';
    return inet_pton(AF_INET6, given, &address) == 1 && inet_ntop(AF_INET6, &address, usual, sizeof usual) &&
           strcmp(given, usual) == 0;
}

// Parsers read a host whose last label is a number, in any notation, as an IPv4 address.
static bool is_sound_domain(struct span host)
{
    char text[256];
    struct in_addr address;
    if (!host.len || host.len >= sizeof text || !has_sound_segments(host, ".", host.len + 1, false))
        return false;
    for (size_t i = 0; i < host.len; i++)
        if (!is_lower(host.at[i]) && !is_digit(host.at[i]) && !is_one_of(host.at[i], "-._"))
            return false;
    memcpy(text, host.at, host.len);
    text[host.len] = '\0';
    const char *dot = strrchr(text, '.'), *last = dot ? dot + 1 : text;
    bool number = last[strspn(last, "0123456789")] == '\0' ||
                  (strncmp(last, "0x", 2) == 0 && last[2 + strspn(last + 2, "0123456789abcdef")] == '\0');
    return !number || inet_pton(AF_INET, text, &address) == 1;
}

static bool is_sound_authority(struct span authority, const struct web *web)
{
    bool literal = authority.len && authority.at[0] == '[';
    const char *close = literal ? memchr(authority.at, ']', authority.len) : NULL;
    const char *colon = literal ? (close && close + 1 < authority.at + authority.len ? close + 1 : NULL)
                                : memchr(authority.at, ':', authority.len);
    struct span host = colon ? span_make(authority.at, (size_t)(colon - authority.at)) : authority;
    if (literal && !close)
        return false;
    if (colon && (*colon != ':' || !host.len || !is_sound_port(span_after(authority, host.len + 1), web)))
        return false;
    if (literal)
        return is_sound_ipv6(span_make(host.at + 1, host.len - 2));
    return web ? is_sound_domain(host) : is_spelled(host, HOST) && !span_is(host, ".") && !span_is(host, "..");
}

// ---- the whole ------------------------------------------------------------------------------

static bool is_sound_behind(struct span rest, bool file, const struct web *web)
{
    size_t end = 0;
    while (end < rest.len && rest.at[end] != '/' && rest.at[end] != '?' && rest.at[end] != HOLE)
        end++;
    struct span authority = span_make(rest.at, end), after = span_after(rest, end);
    if (after.len && after.at[0] == HOLE)
        return (!file || !authority.len) && is_spelled(span_make(rest.at, end + 1), HOST | PORT) &&
               is_sound_tail(after);
    if (file)
        return !authority.len && is_sound_file(after);
    return is_sound_authority(authority, web) && (!web || (after.len && after.at[0] == '/')) && is_sound_path(after);
}

static bool is_scheme_character(char c) { return is_lower(c) || is_digit(c) || c == '+' || c == '-' || c == '.'; }

static bool is_sound(struct span uri)
{
    size_t end = 0;
    while (end < uri.len && is_scheme_character(uri.at[end]))
        end++;
    if (end == uri.len || uri.len > POLICY_URI_MAX || (end && !is_lower(uri.at[0])))
        return false;
    if (uri.at[end] == HOLE)
        return is_sound_tail(uri);
    struct span scheme = span_make(uri.at, end), rest = span_after(uri, end + 1);
    if (!end || uri.at[end] != ':' || !rest.len)
        return false;
    bool file = span_is(scheme, "file"), slash = rest.at[0] == '/';
    const struct web *web = find_web(scheme);
    if (rest.at[0] == HOLE || (slash && rest.len > 1 && rest.at[1] == HOLE))
        return is_sound_tail(rest);
    if (slash)
        return rest.len > 1 && rest.at[1] == '/' && is_sound_behind(span_after(rest, 2), file, web);
    return !file && !web && rest.at[0] != '?' && is_sound_path(rest);
}

// True without a hole, and without a zero byte, which would end a C string.
static bool is_plain(struct span text)
{
    return text.len && !memchr(text.at, HOLE, text.len) && !memchr(text.at, '\0', text.len);
}

bool policy_uri_is_canonical(struct span uri) { return is_plain(uri) && is_sound(uri); }

// ---- texts with holes -----------------------------------------------------------------------

static bool is_expression_character(char c) { return is_raw(c, PATH | QUERY) || is_one_of(c, "%#|"); }

// Replaces expressions by holes. In a pattern, a hole may already hide one of their braces.
static bool put_template(struct span text, bool pattern, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        size_t end = i + 1;
        const char *hole = pattern && out->len ? memrchr(out->at, HOLE, out->len) : NULL;
        if (text.at[i] == '}' && hole) {
            out->len = (size_t)(hole - out->at) + 1;
        } else if (text.at[i] == '{') {
            while (end < text.len && is_expression_character(text.at[end]))
                end++;
            if (end == text.len || (text.at[end] != HOLE && (text.at[end] != '}' || end == i + 1)))
                return false;
            buf_put_char(out, HOLE);
            i = end;
        } else if (text.at[i] == '}' || span_starts(span_after(text, i), "%7B") ||
                   span_starts(span_after(text, i), "%7D")) {
            return false;  // servers that decode the template see a brace
        } else {
            buf_put_char(out, text.at[i]);
        }
    }
    return true;
}

bool policy_uri_template_is_canonical(struct span uri_template)
{
    struct buf text = {0};
    bool ok = is_plain(uri_template) && uri_template.len <= POLICY_URI_MAX &&
              put_template(uri_template, false, &text) && is_sound(buf_span(&text));
    buf_release(&text);
    return ok;
}

bool policy_uri_pattern_can_match(const char *pattern, bool template)
{
    struct buf text = {0}, filled = {0};
    bool ok = !strchr(pattern, HOLE);
    for (; *pattern; pattern++) {
        bool quoted = *pattern == '\\' && (pattern[1] == '*' || pattern[1] == '\\');
        buf_put_char(&text, *pattern == '*' ? HOLE : quoted ? *++pattern : *pattern);
    }
    ok = ok && (!template || put_template(buf_span(&text), true, &filled)) &&
         is_sound(buf_span(template ? &filled : &text));
    buf_release(&text);
    buf_release(&filled);
    return ok;
}

// ---- the canonical spelling -----------------------------------------------------------------

// The character or escape at *i, decoded.
static unsigned char decode(struct span text, size_t *i)
{
    int byte = byte_at(text, *i, true);
    *i += byte < 0 ? 1 : 3;
    return (unsigned char)(byte < 0 ? text.at[*i - 1] : byte);
}

// False: a canonical spelling with the same meaning does not exist.
static bool put_spelled(struct buf *out, struct span text, unsigned part)
{
    for (size_t i = 0; i < text.len;) {
        bool escaped = text.at[i] == '%';
        unsigned char c = decode(text, &i);
        if (c < 0x20 || c == 0x7f || c == '\\' || (escaped && (c == '/' || (c == '&' && part == QUERY))))
            return false;
        char raw = part == HOST ? to_lower((char)c) : (char)c;
        if (is_raw(raw, part))
            buf_put_char(out, raw);
        else
            buf_printf(out, "%%%02X", c);
    }
    return true;
}

// Appends the path without dot segments and empty segments.
static bool put_path(struct buf *out, struct span path, bool rooted, bool file)
{
    size_t start = out->len;
    bool folder = false;
    for (size_t at = 0; at <= path.len;) {
        const char *slash = memchr(path.at + at, '/', path.len - at);
        size_t end = slash ? (size_t)(slash - path.at) : path.len, mark = out->len;
        if (rooted || out->len > start)
            buf_put_char(out, '/');
        size_t from = out->len;
        if (!put_spelled(out, span_make(path.at + at, end - at), PATH))
            return false;
        struct span segment = span_make(out->at + from, out->len - from);
        bool up = span_is(segment, ".."), drive = file && mark == start && segment.len == 2 && segment.at[1] == ':';
        if (drive && is_lower(segment.at[0]))
            out->at[from] = (char)(segment.at[0] & ~0x20);
        folder = !segment.len || up || span_is(segment, ".");
        if (folder)
            out->len = mark;
        while (up && out->len > start && out->at[--out->len] != '/') {}
        at = end + 1;
    }
    if ((folder && !file && out->len > start) || (rooted && out->len == start && path.len))
        buf_put_char(out, '/');
    return true;
}

static bool put_authority(struct buf *out, struct span authority, const struct web *web)
{
    const char *colon = authority.len ? memrchr(authority.at, ':', authority.len) : NULL;
    uint64_t number;
    struct span port = {0}, host = authority;
    if (memchr(authority.at, '@', authority.len))
        return false;
    if (authority.len && authority.at[0] == '[') {
        buf_put_span(out, authority);
        return true;
    }
    if (colon) {
        host = span_make(authority.at, (size_t)(colon - authority.at));
        port = span_after(authority, host.len + 1);
    }
    if (!put_spelled(out, host, HOST))
        return false;
    if (port.len && !(span_to_u64(port, &number) && web && number == web->port))
        buf_printf(out, ":%.*s", SPAN_ARG(port));
    return true;
}

// "file:" is followed by a path, after "localhost" or no host.
static bool put_file(struct buf *out, struct span rest)
{
    if (span_starts(rest, "//")) {
        rest = span_after(rest, 2);
        if (rest.len > 9 && strncasecmp(rest.at, "localhost/", 10) == 0)
            rest = span_after(rest, 9);
        if (!span_starts(rest, "/"))
            return false;
    }
    return put_path(out, rest, true, true);
}

static struct span cut_at(struct span *text, char mark)
{
    const char *at = text->len ? memchr(text->at, mark, text->len) : NULL;
    if (!at)
        return (struct span){0};
    struct span behind = span_after(*text, (size_t)(at - text->at) + 1);
    text->len = (size_t)(at - text->at);
    return behind;
}

static bool put_canonical(struct buf *out, struct span uri)
{
    size_t end = 0;
    (void)cut_at(&uri, '#');
    struct span query = cut_at(&uri, '?');
    for (; end < uri.len && is_scheme_character(to_lower(uri.at[end])); end++)
        buf_put_char(out, to_lower(uri.at[end]));
    struct span scheme = buf_span(out), rest = span_after(uri, end + 1);
    if (!end || end == uri.len || uri.at[end] != ':')
        return false;
    bool file = span_is(scheme, "file"), rooted = file || span_starts(rest, "/");
    const struct web *web = find_web(scheme);
    buf_put_text(out, rooted || web ? "://" : ":");
    if (file)
        return put_file(out, rest);
    if (web || span_starts(rest, "//")) {
        struct span authority = web ? rest : span_after(rest, 2);
        while (web && span_starts(authority, "/"))  // any number of slashes
            authority = span_after(authority, 1);
        const char *slash = memchr(authority.at, '/', authority.len);
        size_t len = slash ? (size_t)(slash - authority.at) : authority.len;
        rest = web && !slash ? span_of("/") : span_after(authority, len);
        authority.len = len;
        if (!put_authority(out, authority, web))
            return false;
    }
    if (!put_path(out, rest, rooted || web, false))
        return false;
    if (query.len)
        buf_put_char(out, '?');
    return put_spelled(out, query, QUERY);
}

bool policy_uri_put_canonical(struct span uri, bool template, struct buf *out)
{
    struct buf text = {0};
    bool expressions = template && uri.len && memchr(uri.at, '{', uri.len);
    bool ok = uri.len && uri.len <= POLICY_URI_MAX && !expressions && put_canonical(&text, uri) &&
              policy_uri_is_canonical(buf_span(&text));
    if (ok)
        buf_put_span(out, buf_span(&text));
    buf_release(&text);
    return ok;
}
