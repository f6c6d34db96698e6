// Owns parsing WWW-Authenticate: several challenges in one header, quoted strings, Bearer anywhere among them.
//
// A comma separates both challenges and parameters (RFC 9110 §11.6.1); a word is a parameter's name if an equals
// sign follows it, and a scheme otherwise. A syntax error ends the parsing; challenges before it count.
#include "auth/oauth/oauth.h"
#include "base/field.h"
#include <strings.h>

#define HEADER_MAX ((size_t)16 << 10)

struct reader {
    const char *at, *end;
};

static bool is_token68(char c) { return field_is_name_char(c) || c == '/' || c == '='; }

static void skip(struct reader *reader, const char *set)
{
    while (reader->at < reader->end && *reader->at && strchr(set, *reader->at))
        reader->at++;
}

static struct span take(struct reader *reader, bool (*belongs)(char))
{
    const char *start = reader->at;
    while (reader->at < reader->end && belongs(*reader->at))
        reader->at++;
    return span_make(start, (size_t)(reader->at - start));
}

// Takes a quoted string, without its quotes and escapes.
static bool take_quoted(struct reader *reader, struct buf *out)
{
    for (reader->at++; reader->at < reader->end; reader->at++) {
        if (*reader->at == '"') {
            reader->at++;
            return true;
        }
        if (*reader->at == '\\' && ++reader->at == reader->end)
            return false;
        buf_put_char(out, *reader->at);
    }
    return false;
}

static void keep(struct oauth_challenge *challenge, struct span name, struct span value, struct arena *arena)
{
    const struct {
        const char *name;
        const char **slot;
    } rows[] = {{"resource_metadata", &challenge->resource_metadata},
                {"scope", &challenge->scope},
                {"error", &challenge->error},
                {"error_description", &challenge->error_description}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (name.len == strlen(rows[i].name) && strncasecmp(name.at, rows[i].name, name.len) == 0 && !*rows[i].slot &&
            value.len && value.len <= OAUTH_VALUE_MAX && !memchr(value.at, '\0', value.len))
            *rows[i].slot = arena_copy(arena, value);
}

// Reads "= value" of a parameter.
static bool take_value(struct reader *reader, struct span name, struct oauth_challenge *into, struct arena *arena)
{
    struct buf quoted = {0};
    struct span value;
    bool ok = true;
    reader->at++;
    skip(reader, " \t");
    if (reader->at < reader->end && *reader->at == '"') {
        ok = take_quoted(reader, &quoted);
        value = buf_span(&quoted);
    } else {
        value = take(reader, is_token68);  // more than a token, because some servers do not quote values
    }
    if (ok)
        keep(into, name, value, arena);
    buf_release(&quoted);
    return ok;
}

// Takes the parameters of one challenge, up to the next scheme or the end. Returns false on a syntax error.
static bool take_parameters(struct reader *reader, struct oauth_challenge *into, struct arena *arena)
{
    struct reader probe = *reader;
    take(&probe, is_token68);
    skip(&probe, " \t");
    if (probe.at == probe.end || *probe.at == ',') {  // one opaque value, or nothing
        struct reader name = *reader;
        struct span word = take(&name, field_is_name_char);
        bool pair = word.len && name.at < name.end && *name.at == '=' && name.at + 1 < probe.at;
        if (!pair)
            *reader = probe;
    }
    for (;;) {
        skip(reader, " \t,");
        struct reader word = *reader;
        struct span name = take(&word, field_is_name_char);
        skip(&word, " \t");
        if (reader->at == reader->end)
            return true;
        if (!name.len)
            return false;
        if (word.at == word.end || *word.at != '=')
            return true;  // the next scheme
        *reader = word;
        if (!take_value(reader, name, into, arena))
            return false;
        skip(reader, " \t");
        if (reader->at < reader->end && *reader->at != ',')
            return false;
    }
}

void oauth_challenge_parse(struct span header, struct arena *arena, struct oauth_challenge *into)
{
    struct reader reader = {header.at, header.at + header.len};
    bool more = header.len <= HEADER_MAX;
    while (more) {
        struct oauth_challenge one = {0};
        skip(&reader, " \t,");
        struct span scheme = take(&reader, field_is_name_char);
        if (!scheme.len)
            return;
        one.bearer = scheme.len == 6 && strncasecmp(scheme.at, "Bearer", 6) == 0;
        skip(&reader, " \t");
        more = take_parameters(&reader, &one, arena) && reader.at < reader.end;
        if (one.bearer && (!into->bearer || (one.resource_metadata && !into->resource_metadata)))
            *into = one;
    }
}
