// Owns the static bearer tokens: their shape, reading the tokens file, looking tokens up. tokens_edit.c rewrites the file.
//
// Invariants, and the tests in tests/unit/auth/caller/tokens_test.c that guard them:
//   - no secret is in the file, in an error or in a snapshot      P8_a_plaintext_token_is_refused_and_not_repeated_in_the_error
//   - every lookup compares one digest, in constant time          P9_a_damaged_or_unknown_token_is_rejected
#include "base/map.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/secret.h"
#include "tokens_read.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

enum { NAME_MAX_CHARS = 256, ROLE_MAX_CHARS = 128, ROLES_MAX = 200, DESCRIPTION_MAX_CHARS = 1024 };

// Identifies one state of the file, as far as stat can; all zero: the file did not exist.
struct tokens_stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct caller_tokens {
    char *path;
    struct tokens_stamp stamp;
    // The option table fills the members from here on.
    char *schema;
    int64_t version;
    struct option_items tokens;  // struct caller_token
    struct map by_id;
};

// ---- the shape of a token -------------------------------------------------------------------

static const char digits62[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static size_t run62(struct span text)
{
    size_t len = 0;
    while (len < text.len &&
           ((text.at[len] >= '0' && text.at[len] <= '9') || (text.at[len] >= 'A' && text.at[len] <= 'Z') ||
            (text.at[len] >= 'a' && text.at[len] <= 'z')))
        len++;
    return len;
}

// CRC-32 as in zlib and PNG, as six digits of base 62.
static void put_crc(struct span text, char out[CALLER_TOKEN_CRC_CHARS])
{
    static const uint32_t by_nibble[16] = {0x00000000U, 0x1DB71064U, 0x3B6E20C8U, 0x26D930ACU, 0x76DC4190U, 0x6B6B51F4U,
                                           0x4DB26158U, 0x5005713CU, 0xEDB88320U, 0xF00F9344U, 0xD6D6A3E8U, 0xCB61B38CU,
                                           0x9B64C2B0U, 0x86D3D2D4U, 0xA00AE278U, 0xBDBDF21CU};
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < text.len; i++) {
        crc ^= (unsigned char)text.at[i];
        crc = crc >> 4 ^ by_nibble[crc & 15];
        crc = crc >> 4 ^ by_nibble[crc & 15];
    }
    crc = ~crc;
    for (int i = CALLER_TOKEN_CRC_CHARS - 1; i >= 0; i--, crc /= 62)
        out[i] = digits62[crc % 62];
}

static struct span id_of(struct span token)
{
    return span_make(token.at + sizeof CALLER_TOKEN_PREFIX - 1, CALLER_TOKEN_ID_CHARS);
}

bool caller_tokens_is_token(struct span token)
{
    if (token.len != CALLER_TOKEN_TOKEN_CHARS || !span_starts(token, CALLER_TOKEN_PREFIX))
        return false;
    struct span id = span_after(token, sizeof CALLER_TOKEN_PREFIX - 1);
    struct span secret = span_after(id, CALLER_TOKEN_ID_CHARS + 1);
    struct span crc = span_after(secret, CALLER_TOKEN_SECRET_CHARS + 1);
    char right[CALLER_TOKEN_CRC_CHARS];
    put_crc(span_make(token.at, token.len - sizeof right - 1), right);
    return run62(id) == CALLER_TOKEN_ID_CHARS && id.at[CALLER_TOKEN_ID_CHARS] == '_' &&
           run62(secret) == CALLER_TOKEN_SECRET_CHARS && secret.at[CALLER_TOKEN_SECRET_CHARS] == '_' &&
           memcmp(crc.at, right, sizeof right) == 0;
}

// True if the text contains a token, even a damaged one.
static bool holds_token(const char *text)
{
    while ((text = strstr(text, CALLER_TOKEN_PREFIX))) {
        text += sizeof CALLER_TOKEN_PREFIX - 1;
        struct span rest = span_of(text);
        if (run62(rest) == CALLER_TOKEN_ID_CHARS && rest.len > CALLER_TOKEN_ID_CHARS &&
            rest.at[CALLER_TOKEN_ID_CHARS] == '_' &&
            run62(span_after(rest, CALLER_TOKEN_ID_CHARS + 1)) >= CALLER_TOKEN_SECRET_CHARS / 2)
            return true;
    }
    return false;
}

// All 62 characters are equally likely: bytes that would favour the first ones are discarded.
static char *put_random(char *out, size_t count)
{
    unsigned char bytes[64];
    for (size_t done = 0; done < count;) {
        secret_random(bytes, sizeof bytes);
        for (size_t i = 0; i < sizeof bytes && done < count; i++)
            if (bytes[i] < 62 * 4)
                out[done++] = digits62[bytes[i] % 62];
    }
    secret_wipe(bytes, sizeof bytes);
    return out + count;
}

void caller_tokens_mint(struct caller_token_minted *out)
{
    unsigned char digest[SECRET_MAC_BYTES];
    *out = (struct caller_token_minted){.token = CALLER_TOKEN_PREFIX};
    char *at = put_random(out->token + sizeof CALLER_TOKEN_PREFIX - 1, CALLER_TOKEN_ID_CHARS);
    memcpy(out->id, at - CALLER_TOKEN_ID_CHARS, CALLER_TOKEN_ID_CHARS);
    *at++ = '_';
    at = put_random(at, CALLER_TOKEN_SECRET_CHARS);
    put_crc(span_make(out->token, (size_t)(at - out->token)), at + 1);
    *at = '_';
    secret_digest(span_make(out->token, CALLER_TOKEN_TOKEN_CHARS), digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(out->sha256 + 2 * i, 3, "%02x", digest[i]);
}

// ---- dates ----------------------------------------------------------------------------------

static bool read_number(const char **at, int count, int min, int max, int *out)
{
    *out = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        *out = *out * 10 + (**at - '0');
    }
    return *out >= min && *out <= max;
}

static bool read_char(const char **at, const char *choices)
{
    if (!**at || !strchr(choices, **at))
        return false;
    (*at)++;
    return true;
}

// From 2000 on, so that no date is 0, which would mean never.
static bool read_day(const char **at, struct tm *parts)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = 0, month = 0;
    if (!read_number(at, 4, 2000, 9999, &year) || !read_char(at, "-") || !read_number(at, 2, 1, 12, &month) ||
        !read_char(at, "-"))
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    parts->tm_year = year - 1900;
    parts->tm_mon = month - 1;
    return read_number(at, 2, 1, days[month - 1] + (leap && month == 2 ? 1 : 0), &parts->tm_mday);
}

// 12:30:00Z, 12:30:00.25+02:00; `offset`: seconds ahead of UTC.
static bool read_time(const char **at, struct tm *parts, int *offset)
{
    int hours = 0, minutes = 0;
    if (!read_number(at, 2, 0, 23, &parts->tm_hour) || !read_char(at, ":") ||
        !read_number(at, 2, 0, 59, &parts->tm_min) || !read_char(at, ":") || !read_number(at, 2, 0, 60, &parts->tm_sec))
        return false;
    if (read_char(at, ".")) {
        if (!read_char(at, "0123456789"))
            return false;
        while (read_char(at, "0123456789"))
            ;
    }
    *offset = 0;
    if (read_char(at, "Zz"))
        return true;
    int sign = **at == '-' ? -1 : 1;
    if (!read_char(at, "+-") || !read_number(at, 2, 0, 23, &hours) || !read_char(at, ":") ||
        !read_number(at, 2, 0, 59, &minutes))
        return false;
    *offset = sign * (hours * 3600 + minutes * 60);
    return true;
}

bool caller_tokens_date(const char *text, int64_t *seconds)
{
    struct tm parts = {0};
    int offset = -86400;  // a date without a time means the end of that day
    if (!read_day(&text, &parts) || (*text && (!read_char(&text, "Tt") || !read_time(&text, &parts, &offset))) || *text)
        return false;
    *seconds = (int64_t)timegm(&parts) - offset;
    return true;
}

void caller_tokens_stamp(int64_t seconds, char out[32])
{
    struct tm parts;
    time_t when = (time_t)seconds;
    gmtime_r(&when, &parts);
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

// ---- checks of the file ---------------------------------------------------------------------

static bool refuse(const struct option_place *place, const char *key, const char *why, struct err *err)
{
    return err_set(err, ERR_CONFIG, "%s: %s/%s: %s", place->file, place->path, key, why);
}

// A name is shown, logged and compared: one line without surrounding spaces, of bounded length.
static bool is_name(const char *text, size_t max)
{
    size_t len = text ? strlen(text) : 0;
    if (len == 0 || len > max || text[0] == ' ' || text[len - 1] == ' ')
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return true;
}

static bool read_hex(const char *text, unsigned char out[32])
{
    static const char hex[] = "0123456789abcdef";
    if (!text || strlen(text) != 64 || strspn(text, hex) != 64)
        return false;
    for (size_t i = 0; i < 32; i++)
        out[i] = (unsigned char)((strchr(hex, text[2 * i]) - hex) << 4 | (strchr(hex, text[2 * i + 1]) - hex));
    return true;
}

static bool check_roles(const struct caller_token *entry, const struct option_place *place, struct err *err)
{
    size_t count = 0;
    for (; entry->roles[count]; count++)
        if (!is_name(entry->roles[count], ROLE_MAX_CHARS) || strchr(entry->roles[count], ','))
            return refuse(place, "roles", "each must be one line of 1 to 128 bytes, without a comma", err);
    return count <= ROLES_MAX || refuse(place, "roles", "more than 200 roles", err);
}

static bool check_entry(void *object, const struct option_place *place, struct err *err)
{
    static const char name_rule[] = "must be one line of 1 to 256 bytes, without spaces around it";
    static const char date_rule[] = "must be a date such as 2027-01-31 or 2027-01-31T12:00:00Z";
    struct caller_token *entry = object;
    struct span id = span_of(entry->id);
    int64_t created;
    if (id.len != CALLER_TOKEN_ID_CHARS || run62(id) != id.len)
        return refuse(place, "id", "must be the token's 8 letters and digits after \"postern_\"", err);
    if (!read_hex(entry->sha256, entry->digest))
        return refuse(place, "sha256", "must be the SHA-256 of the token, 64 hexadecimal digits in lower case", err);
    if (!is_name(entry->subject, NAME_MAX_CHARS))
        return refuse(place, "subject", name_rule, err);
    if (entry->tenant && !is_name(entry->tenant, NAME_MAX_CHARS))
        return refuse(place, "tenant", name_rule, err);
    if (entry->description && !is_name(entry->description, DESCRIPTION_MAX_CHARS))
        return refuse(place, "description", "must be one line of 1 to 1024 bytes, without spaces around it", err);
    if (entry->created && !caller_tokens_date(entry->created, &created))
        return refuse(place, "created", date_rule, err);
    if (entry->expires && !caller_tokens_date(entry->expires, &entry->expires_at))
        return refuse(place, "expires", date_rule, err);
    return check_roles(entry, place, err);
}

static bool check_unique(const struct map *seen, struct span key, const struct option_place *place, struct err *err)
{
    const struct caller_token *other = map_find(seen, key);
    return !other || err_set(err, ERR_CONFIG, "%s: %s: is already used by an earlier token, of subject \"%s\"",
                             place->file, place->path, other->subject);
}

// One object for all calls with the token: the policy recognizes the previous caller by the pointer.
static struct identity *make_identity(const struct caller_token *entry)
{
    struct identity *identity =
        identity_new(IDENTITY_BEARER, entry->tenant ? entry->tenant : "default", "bearer", entry->subject);
    for (const char *const *role = entry->roles; *role; role++)
        identity_add_role(identity, span_of(*role));
    identity->token_id = mem_string(entry->id);
    identity->expires = entry->expires_at;
    return identity;
}

static bool check_file(void *object, const struct option_place *place, struct err *err)
{
    struct caller_tokens *file = object;
    struct caller_token *entries = file->tokens.at;
    struct map by_digest = {0};
    bool ok = file->version == 1 || refuse(place, "version", "must be 1", err);
    for (size_t i = 0; ok && i < file->tokens.count; i++) {
        struct span id = span_of(entries[i].id);
        struct span digest = span_make((const char *)entries[i].digest, sizeof entries[i].digest);
        char id_path[64], digest_path[64];
        snprintf(id_path, sizeof id_path, "/tokens/%zu/id", i);
        snprintf(digest_path, sizeof digest_path, "/tokens/%zu/sha256", i);
        ok = check_unique(&file->by_id, id, &(struct option_place){.file = place->file, .path = id_path}, err) &&
             check_unique(&by_digest, digest, &(struct option_place){.file = place->file, .path = digest_path}, err);
        map_put(&file->by_id, id, &entries[i]);
        map_put(&by_digest, digest, &entries[i]);
        entries[i].identity = make_identity(&entries[i]);
    }
    map_release(&by_digest);
    return ok;
}

#define AT(member) offsetof(struct caller_token, member)
static const struct option entry_rows[] = {
    {.name = "id", .type = OPTION_STRING, .offset = AT(id), .help = "The public part of the token."},
    {.name = "sha256", .type = OPTION_STRING, .offset = AT(sha256), .help = "SHA-256 of the whole token, in hex."},
    {.name = "subject",
     .type = OPTION_STRING,
     .offset = AT(subject),
     .help = "The subject that the token authenticates."},
    {.name = "roles", .type = OPTION_STRINGS, .offset = AT(roles), .fallback = "[]", .help = "Roles of the subject."},
    {.name = "tenant", .type = OPTION_STRING, .offset = AT(tenant), .help = "Absent: `default`."},
    {.name = "created", .type = OPTION_STRING, .offset = AT(created), .help = "When the token was issued."},
    {.name = "expires",
     .type = OPTION_STRING,
     .offset = AT(expires),
     .help = "A date (the token is valid to the end of that day, UTC) or an RFC 3339 time."},
    {.name = "description", .type = OPTION_STRING, .offset = AT(description), .help = "The purpose of the token."},
    {0},
};
#undef AT
static const struct option_table entry_options = {"A token (tokens[])", sizeof(struct caller_token), entry_rows,
                                                  check_entry};

#define AT(member) offsetof(struct caller_tokens, member)
static const struct option file_rows[] = {
    {.name = "$schema", .type = OPTION_STRING, .offset = AT(schema), .help = "The JSON schema, for editors."},
    {.name = "version", .type = OPTION_INT, .offset = AT(version), .help = "The version of the format: 1."},
    {.name = "tokens", .type = OPTION_OBJECTS, .offset = AT(tokens), .sub = &entry_options, .help = "The tokens."},
    {0},
};
#undef AT
static const struct option_table file_options = {"Tokens file", sizeof(struct caller_tokens), file_rows, check_file};

// Runs before any other check, because the errors of those repeat texts of the file. `path` is the place of the text.
static bool check_text(const char *text, const char *file, struct buf *path, struct err *err)
{
    const char *where = path->len ? buf_text(path) : "/";
    if (holds_token(text))
        return err_set(err, ERR_CONFIG,
                       "%s: %s: contains a token in plain text; store only its SHA-256, and replace the token, because "
                       "it may have been read",
                       file, where);
    if (strstr(text, "${"))  // the tables would expand it, and saving would write the value to the file
        return err_set(err, ERR_CONFIG,
                       "%s: %s: \"${\" is not allowed: the tokens file cannot use environment variables", file, where);
    return true;
}

static bool check_texts(const json_t *tree, const char *file, struct buf *path, struct err *err)
{
    const char *key;
    json_t *value;
    size_t i, len = path->len;
    if (json_is_string(tree))
        return check_text(json_string_value(tree), file, path, err);
    json_array_foreach(tree, i, value) {
        buf_printf(path, "/%zu", i);
        if (!check_texts(value, file, path, err))
            return false;
        path->len = len;
    }
    json_object_foreach((json_t *)(uintptr_t)tree, key, value) {
        if (!check_text(key, file, path, err))
            return false;
        buf_printf(path, "/%s", key);
        if (!check_texts(value, file, path, err))
            return false;
        path->len = len;
    }
    return true;
}

static bool parse_checked(const struct option_table *table, const json_t *tree, void *into,
                          const struct option_place *place, struct err *err)
{
    struct buf path = {0};
    buf_put_text(&path, place->path);
    bool ok = check_texts(tree, place->file, &path, err) && option_parse(table, tree, into, place, err);
    buf_release(&path);
    return ok;
}

bool caller_tokens_entry_readable(const json_t *tree, const struct option_place *place, struct err *err)
{
    struct caller_token entry = {0};
    bool ok = parse_checked(&entry_options, tree, &entry, place, err);
    option_release(&entry_options, &entry);
    return ok;
}

bool caller_tokens_read(const json_t *tree, struct caller_tokens *into, struct err *err)
{
    return parse_checked(&file_options, tree, into, &(struct option_place){.file = into->path, .path = ""}, err);
}

// ---- a snapshot -----------------------------------------------------------------------------

static struct tokens_stamp stamp_of(const char *path)
{
    struct stat is;
    if (stat(path, &is) != 0)
        return (struct tokens_stamp){0};
    return (struct tokens_stamp){is.st_dev, is.st_ino, is.st_size, is.st_ctim};
}

struct caller_tokens *caller_tokens_new(const char *path)
{
    struct caller_tokens *file = mem_new(struct caller_tokens);
    file->path = mem_string(path);
    file->stamp = stamp_of(path);
    return file;
}

struct caller_tokens *caller_tokens_load(const char *path, struct err *err)
{
    struct caller_tokens *file =
        caller_tokens_new(path);  // stat precedes the read, so that a change in between counts as stale
    json_t *tree = json_parse_file(path, err);
    bool ok = tree && caller_tokens_read(tree, file, err);
    json_decref(tree);
    if (ok)
        return file;
    caller_tokens_free(file);
    return NULL;
}

void caller_tokens_free(struct caller_tokens *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->tokens.count; i++)
        identity_unref(caller_tokens_at(file, i)->identity);
    option_release(&file_options, file);
    map_release(&file->by_id);
    free(file->path);
    free(file);
}

bool caller_tokens_stale(const struct caller_tokens *file)
{
    struct tokens_stamp was = file->stamp, is = stamp_of(file->path);
    return was.device != is.device || was.inode != is.inode || was.size != is.size ||
           was.changed.tv_sec != is.changed.tv_sec || was.changed.tv_nsec != is.changed.tv_nsec;
}

const char *caller_tokens_schema(const struct caller_tokens *file) { return file->schema; }
size_t caller_tokens_count(const struct caller_tokens *file) { return file->tokens.count; }

const struct caller_token *caller_tokens_at(const struct caller_tokens *file, size_t i)
{
    return (const struct caller_token *)file->tokens.at + i;
}

const struct caller_token *caller_tokens_named(const struct caller_tokens *file, struct span id)
{
    return map_find(&file->by_id, id);
}

bool caller_tokens_expired(const struct caller_token *entry, int64_t now)
{
    return entry->expires_at && now >= entry->expires_at;
}

enum provider_verdict caller_tokens_find(const struct caller_tokens *file, struct span presented, int64_t now,
                                         const struct caller_token **out)
{
    static const unsigned char no_digest[SECRET_MAC_BYTES];
    unsigned char digest[SECRET_MAC_BYTES];
    *out = NULL;
    if (!span_starts(presented, CALLER_TOKEN_PREFIX))
        return PROVIDER_PASS;
    bool fits = presented.len == CALLER_TOKEN_TOKEN_CHARS;  // the digest decides whether the token is correct
    const struct caller_token *entry = fits ? caller_tokens_named(file, id_of(presented)) : NULL;
    if (presented.len > CALLER_TOKEN_TOKEN_CHARS)
        presented.len = CALLER_TOKEN_TOKEN_CHARS;  // damaged anyway: a long token must not cost more work
    secret_digest(presented, digest);
    bool same = secret_equal(digest, entry ? entry->digest : no_digest, sizeof digest);
    secret_wipe(digest, sizeof digest);
    if (!entry || !same || caller_tokens_expired(entry, now))
        return PROVIDER_REJECT;
    *out = entry;
    return PROVIDER_ACCEPT;
}

void caller_tokens_vouch(struct caller_tokens *file, const char *provider)
{
    for (size_t i = 0; i < caller_tokens_count(file); i++) {
        struct identity *identity = caller_tokens_at(file, i)->identity;
        free(identity->provider);
        identity->provider = mem_string(provider);
    }
}

struct identity *caller_tokens_identity(const struct caller_token *entry) { return identity_ref(entry->identity); }
