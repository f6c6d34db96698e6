// Owns the content of an audit row: the table of its members, and their JSON.
//
//     shared     ,"event":"call","tenant":"…", …                members shared by many rows: identity, item, outcome
//     own        ,"request", …,17,100,200                       the other members, without names; null if absent
//     whole      {"seq":7,"time":"…" SHARED,"request":"…", …,"hash":"…"}
//     shown      {"seq":7,"time":"…" SHARED,"request":"…", …,"prev":"…","hash":"…"}
//
// Each text is encoded as JSON once; draft.c combines the parts, and rows.c splits them.
#include "row.h"
#include "base/scan.h"
#include <time.h>

enum { TEXT_MAX = 1024, LONG_MAX_BYTES = 64 * 1024 };
enum { WHO_FIRST = 1, WHO_END = 7 };  // of the table: `tenant` to `roles`

static const char *const events[] = {"call", "authentication", "policy", "token", "operation",
                                     "gap",  "retention",      NULL};
static const char *const chains[] = {"calls", "authentication", "administration", NULL};
static const char *const decisions[] = {"", "deny", "allow", NULL};
static const char *const statuses[] = {"error", "ok", "denied", "timeout", "cancelled", "gone", NULL};

#define KEY(name) ",\"" name "\":", sizeof(",\"" name "\":") - 1
#define AT(member) offsetof(struct audit_record, member)
// clang-format off
const struct audit_row_field audit_row_fields[] = {
    {KEY("event"),            AUDIT_ROW_WORD,  AT(event),            events},
    {KEY("tenant"),           AUDIT_ROW_TEXT,  AT(tenant),           NULL},
    {KEY("provider"),         AUDIT_ROW_TEXT,  AT(provider),         NULL},
    {KEY("subject"),          AUDIT_ROW_TEXT,  AT(subject),          NULL},
    {KEY("proof"),            AUDIT_ROW_TEXT,  AT(proof),            NULL},
    {KEY("token"),            AUDIT_ROW_TEXT,  AT(token),            NULL},
    {KEY("roles"),            AUDIT_ROW_TEXT,  AT(roles),            NULL},
    {KEY("peer"),             AUDIT_ROW_TEXT,  AT(peer),             NULL},
    {KEY("server"),           AUDIT_ROW_TEXT,  AT(server),           NULL},
    {KEY("kind"),             AUDIT_ROW_TEXT,  AT(kind),             NULL},
    {KEY("name"),             AUDIT_ROW_TEXT,  AT(name),             NULL},
    {KEY("method"),           AUDIT_ROW_TEXT,  AT(method),           NULL},
    {KEY("decision"),         AUDIT_ROW_WORD,  AT(decision),         decisions},
    {KEY("rule"),             AUDIT_ROW_TEXT,  AT(rule),             NULL},
    {KEY("policy"),           AUDIT_ROW_TEXT,  AT(policy),           NULL},
    {KEY("status"),           AUDIT_ROW_WORD,  AT(status),           statuses},
    {KEY("reason"),           AUDIT_ROW_TEXT,  AT(reason),           NULL},
    {KEY("count"),            AUDIT_ROW_COUNT, AT(count),            NULL},
    {KEY("first_seq"),        AUDIT_ROW_COUNT, AT(first_seq),        NULL},
    // The row's own members begin here: AUDIT_ROW_SHARED.
    {KEY("request"),          AUDIT_ROW_TEXT,  AT(request),          NULL},
    {KEY("arguments_sha256"), AUDIT_ROW_TEXT,  AT(arguments_sha256), NULL},
    {KEY("arguments"),        AUDIT_ROW_TEXT,  AT(arguments),        NULL},
    {KEY("duration_us"),      AUDIT_ROW_INT,   AT(duration_us),      NULL},
    {KEY("bytes_in"),         AUDIT_ROW_INT,   AT(bytes_in),         NULL},
    {KEY("bytes_out"),        AUDIT_ROW_INT,   AT(bytes_out),        NULL},
    {0},
};
// clang-format on
#undef AT
#undef KEY

static const char hash_key[] = ",\"hash\":\"", prev_key[] = ",\"prev\":\"";
enum { END_CHARS = sizeof hash_key - 1 + AUDIT_HASH_CHARS + 2 };  // with the closing quote and the brace

const char *audit_row_chain_text(enum audit_chain chain) { return chains[chain]; }
const char *audit_row_event_text(enum audit_event event) { return events[event]; }
const char *audit_row_status_text(enum audit_status status) { return statuses[status]; }

enum audit_chain audit_row_chain(const struct audit_record *record)
{
    switch (record->event) {
    case AUDIT_CALL: return AUDIT_CHAIN_CALLS;
    case AUDIT_AUTHENTICATION: return AUDIT_CHAIN_AUTHENTICATION;
    case AUDIT_RETENTION:
        for (enum audit_chain chain = 0; chain < AUDIT_CHAINS; chain++)
            if (span_is(record->kind, chains[chain]))
                return chain;
        return AUDIT_CHAIN_ADMINISTRATION;
    default: return AUDIT_CHAIN_ADMINISTRATION;
    }
}

struct span audit_row_name(const struct audit_row_field *field)
{
    return span_make(field->key + 2, field->key_len - 4);
}

// ---- members --------------------------------------------------------------------------------

static char *put_digits(char *at, int value, int digits)
{
    for (int i = digits; i-- > 0; value /= 10)
        at[i] = (char)('0' + value % 10);
    return at + digits;
}

void audit_row_stamp(int64_t time_ms, char out[AUDIT_ROW_STAMP_CHARS + 1])
{
    struct tm parts;
    time_t seconds = (time_t)(time_ms / 1000);
    gmtime_r(&seconds, &parts);
    const struct {
        int value, digits;
        char then;
    } all[] = {{parts.tm_year + 1900, 4, '-'}, {parts.tm_mon + 1, 2, '-'}, {parts.tm_mday, 2, 'T'},
               {parts.tm_hour, 2, ':'},        {parts.tm_min, 2, ':'},     {parts.tm_sec, 2, '.'},
               {(int)(time_ms % 1000), 3, 'Z'}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        out = put_digits(out, all[i].value, all[i].digits);
        *out++ = all[i].then;
    }
    *out = '\0';
}

// The text as JSON. A long text is cut, not in the middle of a character, and ends in "…".
static void put_text(struct buf *out, struct span text, size_t max)
{
    if (text.len <= max) {
        scan_encode_lossy(text, out);
        return;
    }
    scan_encode_lossy(span_make(text.at, scan_cut(text, max)), out);
    out->len--;  // the closing quote
    buf_put_text(out, "\xE2\x80\xA6\"");
}

size_t audit_row_text_max(const struct audit_row_field *field)
{
    return field->offset == offsetof(struct audit_record, arguments) ||
                   field->offset == offsetof(struct audit_record, roles)
               ? LONG_MAX_BYTES
               : TEXT_MAX;
}

static bool is_absent(const struct audit_row_field *field, const struct audit_record *record)
{
    const void *at = (const char *)record + field->offset;
    switch (field->type) {
    case AUDIT_ROW_TEXT: return ((const struct span *)at)->len == 0;
    case AUDIT_ROW_WORD: return !*field->words[*(const unsigned *)at];
    case AUDIT_ROW_COUNT: return *(const int64_t *)at == 0;
    default: return false;
    }
}

static void put_value(struct buf *out, const struct audit_row_field *field, const struct audit_record *record)
{
    const void *at = (const char *)record + field->offset;
    switch (field->type) {
    case AUDIT_ROW_TEXT: put_text(out, *(const struct span *)at, audit_row_text_max(field)); return;
    case AUDIT_ROW_WORD:
        buf_put_char(out, '"');
        buf_put_text(out, field->words[*(const unsigned *)at]);
        buf_put_char(out, '"');
        return;
    default: buf_put_int(out, *(const int64_t *)at);
    }
}

static void put_fields(struct buf *out, size_t from, size_t to, const struct audit_record *record)
{
    for (const struct audit_row_field *field = audit_row_fields + from; from < to; from++, field++) {
        if (is_absent(field, record))
            continue;
        buf_put(out, field->key, field->key_len);
        put_value(out, field, record);
    }
}

char *audit_row_who(const struct audit_record *record)
{
    struct buf text = {0};
    put_fields(&text, WHO_FIRST, WHO_END, record);
    return buf_take(&text, NULL);
}

void audit_row_put_shared(const struct audit_record *record, struct buf *out)
{
    put_fields(out, 0, record->who ? WHO_FIRST : WHO_END, record);
    if (record->who)
        buf_put_text(out, record->who);
    put_fields(out, WHO_END, AUDIT_ROW_SHARED, record);
}

void audit_row_put_own(const struct audit_record *record, struct buf *out)
{
    for (const struct audit_row_field *field = audit_row_fields + AUDIT_ROW_SHARED; field->key; field++) {
        buf_put_char(out, ',');
        if (is_absent(field, record))
            buf_put(out, "null", 4);
        else
            put_value(out, field, record);
    }
}

// ---- hashes ---------------------------------------------------------------------------------

static void put_hash(const char *key, const char *hash, struct buf *out)
{
    buf_put(out, key, sizeof hash_key - 1);
    buf_put(out, hash, AUDIT_HASH_CHARS);
    buf_put_char(out, '"');
}

// Appends the last members and the brace; `prev` may be NULL. Both hashes have AUDIT_HASH_CHARS.
static void put_end(const char *prev, const char *hash, struct buf *out)
{
    if (prev)
        put_hash(prev_key, prev, out);
    put_hash(hash_key, hash, out);
    buf_put_char(out, '}');
}

void audit_row_show(const char *prev, struct span whole, struct buf *out)
{
    size_t end = whole.len - END_CHARS;
    buf_put(out, whole.at, end);
    put_end(prev, whole.at + end + sizeof hash_key - 1, out);
}

// ---- reading --------------------------------------------------------------------------------

static bool read_text(struct span raw, struct arena *arena, struct span *out)
{
    struct buf decoded = {0};
    if (!scan_is_string(raw))
        return false;
    *out = span_make(raw.at + 1, raw.len - 2);
    if (!memchr(out->at, '\\', out->len))
        return true;
    scan_decode(raw, &decoded);
    *out = arena_span(arena, buf_span(&decoded));
    buf_release(&decoded);
    return true;
}

static bool read_number(struct span raw, int64_t *out)
{
    uint64_t number;
    bool negative = raw.len && *raw.at == '-';
    struct span digits = span_after(raw, negative);
    if (digits.len > 18 || !span_to_u64(digits, &number))
        return false;
    *out = negative ? -(int64_t)number : (int64_t)number;
    return true;
}

static bool read_word(struct span raw, const char *const *words, unsigned *out)
{
    for (*out = 0; words[*out]; ++*out)
        if (raw.len >= 2 && span_is(span_make(raw.at + 1, raw.len - 2), words[*out]))
            return true;
    *out = 0;
    return false;
}

static bool read_field(const struct audit_row_field *field, struct span raw, struct arena *arena,
                       struct audit_record *record)
{
    void *at = (char *)record + field->offset;
    switch (field->type) {
    case AUDIT_ROW_TEXT: return read_text(raw, arena, at);
    case AUDIT_ROW_WORD: return read_word(raw, field->words, at);
    default: return read_number(raw, at);
    }
}

static bool is_key(struct span raw_key, const char *name)  // of a key that has no escapes
{
    return span_is(span_make(raw_key.at + 1, raw_key.len - 2), name);
}

static bool read_hash(struct span raw, struct span *hash)
{
    *hash = span_make(raw.at + 1, AUDIT_HASH_CHARS);
    return raw.len == AUDIT_HASH_CHARS + 2 && *raw.at == '"';
}

// The members must have the order of the table, without others between them.
bool audit_row_read(struct span whole, struct arena *arena, struct audit_row *row)
{
    struct span key, raw;
    *row = (struct audit_row){0};
    if (!scan_is_object(whole))
        return false;
    struct scan_walk walk = scan_walk(whole);
    if (!scan_member(&walk, &key, &raw) || !is_key(key, "seq") || !read_number(raw, &row->seq) ||
        !scan_member(&walk, &key, &raw) || !is_key(key, "time") || !read_text(raw, arena, &row->time))
        return false;
    for (const struct audit_row_field *field = audit_row_fields; scan_member(&walk, &key, &raw); field++) {
        while (field->key && !(key.len == field->key_len - 2 && memcmp(key.at, field->key + 1, key.len) == 0))
            field++;
        if (!field->key)  // the last one
            return is_key(key, "hash") && read_hash(raw, &row->hash) && !scan_member(&walk, &key, &raw) &&
                   whole.at + whole.len - END_CHARS == row->hash.at - (sizeof hash_key - 1);
        if (!read_field(field, raw, arena, &row->record))
            return false;
    }
    return false;
}
