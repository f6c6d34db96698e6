// Owns what an audit row consists of: the table of its columns, its canonical JSON and its hash.
//
// The JSON must be one-to-one with the columns, or a change could hide: every text is quoted (also `arguments`, though
// it is JSON itself), "" and NULL are not both possible, and texts are valid UTF-8, which the encoder leaves as it is.
#include "audit_row.h"
#include "base/scan.h"
#include "base/secret.h"
#include <stdio.h>
#include <time.h>

enum { TEXT_MAX = 1024, LONG_MAX_BYTES = 64 * 1024 };

static const char *const events[] = {"call", "authentication", "policy", "token", "gap", "retention", NULL};
static const char *const decisions[] = {"", "deny", "allow", NULL};
static const char *const statuses[] = {"error", "ok", "denied", "timeout", "cancelled", "gone", NULL};

#define AT(member) offsetof(struct audit_record, member)
// clang-format off
const struct audit_row_field audit_row_fields[] = {
    {"event",            AUDIT_ROW_WORD,  AT(event),            events,    1},
    {"request",          AUDIT_ROW_TEXT,  AT(request),          NULL,      1},
    {"tenant",           AUDIT_ROW_TEXT,  AT(tenant),           NULL,      1},
    {"provider",         AUDIT_ROW_TEXT,  AT(provider),         NULL,      1},
    {"subject",          AUDIT_ROW_TEXT,  AT(subject),          NULL,      1},
    {"proof",            AUDIT_ROW_TEXT,  AT(proof),            NULL,      1},
    {"token",            AUDIT_ROW_TEXT,  AT(token),            NULL,      1},
    {"roles",            AUDIT_ROW_TEXT,  AT(roles),            NULL,      2},
    {"server",           AUDIT_ROW_TEXT,  AT(server),           NULL,      1},
    {"kind",             AUDIT_ROW_TEXT,  AT(kind),             NULL,      1},
    {"name",             AUDIT_ROW_TEXT,  AT(name),             NULL,      1},
    {"method",           AUDIT_ROW_TEXT,  AT(method),           NULL,      1},
    {"decision",         AUDIT_ROW_WORD,  AT(decision),         decisions, 1},
    {"rule",             AUDIT_ROW_TEXT,  AT(rule),             NULL,      1},
    {"policy",           AUDIT_ROW_TEXT,  AT(policy),           NULL,      1},
    {"arguments_sha256", AUDIT_ROW_TEXT,  AT(arguments_sha256), NULL,      1},
    {"arguments",        AUDIT_ROW_TEXT,  AT(arguments),        NULL,      1},
    {"status",           AUDIT_ROW_WORD,  AT(status),           statuses,  1},
    {"reason",           AUDIT_ROW_TEXT,  AT(reason),           NULL,      1},
    {"duration_us",      AUDIT_ROW_INT,   AT(duration_us),      NULL,      1},
    {"bytes_in",         AUDIT_ROW_INT,   AT(bytes_in),         NULL,      1},
    {"bytes_out",        AUDIT_ROW_INT,   AT(bytes_out),        NULL,      1},
    {"count",            AUDIT_ROW_COUNT, AT(count),            NULL,      1},
    {"first_seq",        AUDIT_ROW_COUNT, AT(first_seq),        NULL,      1},
    {0},
};
// clang-format on
#undef AT

const char *audit_event_text(enum audit_event event) { return events[event]; }
const char *audit_decision_text(enum audit_decision decision) { return decision ? decisions[decision] : NULL; }
const char *audit_status_text(enum audit_status status) { return statuses[status]; }

// ---- texts ----------------------------------------------------------------------------------

static struct span *text_at(const struct audit_row_field *field, struct audit_record *record)
{
    return (struct span *)(void *)((char *)record + field->offset);
}

static struct span copy_cut(struct arena *arena, struct span text, size_t max)
{
    static const char more[] = "\xE2\x80\xA6";  // …
    if (text.len <= max)
        return text.len ? arena_span(arena, text) : (struct span){NULL, 0};
    while (max > 0 && ((unsigned char)text.at[max] & 0xC0) == 0x80)  // not in the middle of a character
        max--;
    char *copy = arena_alloc(arena, max + sizeof more);
    memcpy(copy, text.at, max);
    memcpy(copy + max, more, sizeof more);
    return span_make(copy, max + sizeof more - 1);
}

void audit_row_copy(struct arena *arena, const struct audit_record *from, struct audit_record *to)
{
    *to = *from;
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        if (field->type == AUDIT_ROW_TEXT) {
            struct span *text = text_at(field, to);
            *text = copy_cut(arena, *text, text == &to->arguments || text == &to->roles ? LONG_MAX_BYTES : TEXT_MAX);
        }
}

static bool is_plain(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)(text.at[i] - 1) >= 0x7F)
            return false;
    return true;
}

// The text as the encoder would give it back: what is no UTF-8 becomes U+FFFD.
static void lossy(struct span text, struct buf *out)
{
    struct buf quoted = {0};
    scan_encode_lossy(text, &quoted);
    scan_decode(buf_span(&quoted), out);
    buf_release(&quoted);
}

bool audit_row_is_clean(struct span text)
{
    if (is_plain(text))
        return true;
    struct buf round = {0};
    lossy(text, &round);
    bool same = span_equal(buf_span(&round), text) && !memchr(text.at, '\0', text.len);
    buf_release(&round);
    return same;
}

static struct span clean(struct arena *arena, struct span text)
{
    struct buf whole = {0}, out = {0};
    lossy(text, &whole);
    for (size_t i = 0; i < whole.len; i++)
        if (whole.at[i])
            buf_put_char(&out, whole.at[i]);
        else
            buf_put_text(&out, "\xEF\xBF\xBD");
    struct span kept = arena_span(arena, buf_span(&out));
    buf_release(&whole);
    buf_release(&out);
    return kept;
}

void audit_row_clean(struct arena *arena, struct audit_record *record)
{
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++) {
        struct span *text = field->type == AUDIT_ROW_TEXT ? text_at(field, record) : NULL;
        if (text && !is_plain(*text))
            *text = clean(arena, *text);
    }
}

// ---- JSON and hash --------------------------------------------------------------------------

void audit_row_stamp(int64_t time_ms, char out[AUDIT_ROW_STAMP_CHARS + 1])
{
    struct tm parts;
    time_t seconds = (time_t)(time_ms / 1000);
    gmtime_r(&seconds, &parts);
    char room[80];  // for years nobody will see
    snprintf(room, sizeof room, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1,
             parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, (int)(time_ms % 1000));
    memcpy(out, room, AUDIT_ROW_STAMP_CHARS);
    out[AUDIT_ROW_STAMP_CHARS] = '\0';
}

static void put_name(struct buf *out, const char *name)
{
    buf_put(out, ",\"", 2);
    buf_put_text(out, name);
    buf_put(out, "\":", 2);
}

static void put_field(struct buf *out, const struct audit_row_field *field, const struct audit_record *record)
{
    const void *at = (const char *)record + field->offset;
    switch (field->type) {
    case AUDIT_ROW_TEXT:
        if (((const struct span *)at)->len) {
            put_name(out, field->name);
            scan_encode_lossy(*(const struct span *)at, out);
        }
        break;
    case AUDIT_ROW_WORD: {
        const char *word = field->words[*(const unsigned *)at];
        if (*word) {
            put_name(out, field->name);
            buf_put_char(out, '"');
            buf_put_text(out, word);
            buf_put_char(out, '"');
        }
        break;
    }
    case AUDIT_ROW_COUNT:
        if (!*(const int64_t *)at)
            break;
        // fall through
    case AUDIT_ROW_INT:
        put_name(out, field->name);
        buf_put_int(out, *(const int64_t *)at);
        break;
    }
}

// Without the closing brace.
static void put_members(const struct audit_row *row, struct buf *out)
{
    buf_put_text(out, "{\"seq\":");
    buf_put_int(out, row->seq);
    put_name(out, "time");
    scan_encode_lossy(row->time, out);
    for (const struct audit_row_field *field = audit_row_fields; field->name; field++)
        put_field(out, field, &row->record);
}

void audit_row_chain(const struct audit_row *row, struct buf *out)
{
    buf_put_span(out, row->prev);
    put_members(row, out);
    buf_put_char(out, '}');
}

void audit_row_json(const struct audit_row *row, struct buf *out)
{
    put_members(row, out);
    put_name(out, "prev");
    scan_encode_lossy(row->prev, out);
    put_name(out, "hash");
    scan_encode_lossy(row->hash, out);
    buf_put_char(out, '}');
}

void audit_digest(struct span bytes, char out[AUDIT_HASH_CHARS + 1])
{
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[SECRET_MAC_BYTES];
    secret_digest(bytes, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[AUDIT_HASH_CHARS] = '\0';
}

void audit_row_hash(const struct audit_row *row, struct buf *scratch, char out[AUDIT_HASH_CHARS + 1])
{
    buf_clear(scratch);
    audit_row_chain(row, scratch);
    audit_digest(buf_span(scratch), out);
}
