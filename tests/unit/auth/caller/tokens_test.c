// Tests caller tokens: the token file (P8), the form and lookup of a token (P9), and the properties of each entry (P10).
#include "base/json.h"
#include "base/mem.h"
#include "base/secret.h"
#include "folder.h"
#include "tokens_read.h"
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---- the folder of a test -------------------------------------------------------------------

static char path[96];

static int set_up(void **state)
{
    if (make_directory(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/tokens.json", directory);
    alarm(120);  // a failed test may leave its lock, for which the next test would wait
    return 0;
}

static size_t files_there(void)
{
    size_t count = 0;
    DIR *all = opendir(directory);
    for (struct dirent *one; (one = readdir(all));)
        count += strcmp(one->d_name, ".") != 0 && strcmp(one->d_name, "..") != 0;
    closedir(all);
    return count;
}

static void write_text(const char *text) { write_file(path, text); }

static char *read_text(void)
{
    char block[65536];
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    size_t len = fread(block, 1, sizeof block, in);
    fclose(in);
    return mem_copy(block, len);
}

// ---- tokens made by hand --------------------------------------------------------------------

#define ID "Ab3dEf9h"
#define SECRET "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg"
#define BODY "postern_" ID "_" SECRET
#define TOKEN BODY "_2aQViB"  // CRC-32 of BODY, computed with zlib
#define SHA "e3171a39fca0d7374796f515e8753330bd94043e39d30e6eedf4c8119a5ac78f"
#define OTHER "b3171a39fca0d7374796f515e8753330bd94043e39d30e6eedf4c8119a5ac78f"
#define NOW 1800000000  // 2027-01-15T08:00:00Z

static const char *const no_roles[] = {NULL};

static struct caller_tokens *load(const char *text, struct err *err)
{
    *err = (struct err){0};
    write_text(text);
    return caller_tokens_load(path, err);
}

// Loads a file with one entry for TOKEN; `more` has further members of the entry and begins with a comma.
static struct caller_tokens *load_one(const char *more)
{
    struct err err;
    struct buf text = {0};
    buf_printf(&text, "{\"version\":1,\"tokens\":[{\"id\":\"" ID "\",\"sha256\":\"" SHA "\",\"subject\":\"alice\"%s}]}",
               more);
    struct caller_tokens *file = load(buf_text(&text), &err);
    buf_release(&text);
    if (!file)
        fail_msg("%s", err.detail);
    return file;
}

static enum provider_verdict find(const struct caller_tokens *file, struct span token, int64_t now)
{
    const struct caller_token *entry = (const struct caller_token *)1;
    enum provider_verdict verdict = caller_tokens_find(file, token, now, &entry);
    assert_int_equal(verdict == PROVIDER_ACCEPT, entry != NULL);
    return verdict;
}

// ---- P8: only digests are stored ------------------------------------------------------------

static void P8_the_file_has_the_digest_of_the_whole_token_and_no_part_of_its_secret(void **state)
{
    (void)state;
    struct err err = {0};
    struct caller_token_minted minted;
    struct caller_tokens_edit *edit = caller_tokens_edit_start(path, true, &err);
    assert_non_null(edit);
    caller_tokens_mint(&minted);
    assert_true(caller_tokens_edit_put(
        edit, &(struct caller_token){.id = minted.id, .sha256 = minted.sha256, .subject = "alice", .roles = no_roles},
        &err));
    assert_true(caller_tokens_edit_save(edit, &err));
    caller_tokens_edit_free(edit);

    char *text = read_text(), part[9] = {0};
    for (size_t i = 17; i + 8 <= 60; i++) {
        memcpy(part, minted.token + i, 8);
        assert_null(strstr(text, part));
    }
    free(text);

    unsigned char digest[SECRET_MAC_BYTES];
    struct caller_tokens *file = caller_tokens_load(path, &err);
    const struct caller_token *entry = caller_tokens_at(file, 0);
    secret_digest(span_of(minted.token), digest);
    assert_memory_equal(entry->digest, digest, sizeof digest);
    assert_string_equal(entry->sha256, minted.sha256);
    assert_int_equal(find(file, span_of(minted.token), NOW), PROVIDER_ACCEPT);
    caller_tokens_free(file);
}

static void P8_a_secret_has_256_bits(void **state)
{
    (void)state;
    // 62^43 is just above 2^256. All 62 characters must occur in every place.
    unsigned seen[CALLER_TOKEN_SECRET_CHARS][128] = {0}, total[128] = {0};
    enum { ROUNDS = 4000 };
    for (int i = 0; i < ROUNDS; i++) {
        struct caller_token_minted minted;
        caller_tokens_mint(&minted);
        for (size_t k = 0; k < CALLER_TOKEN_SECRET_CHARS; k++) {
            seen[k][(unsigned char)minted.token[17 + k]]++;
            total[(unsigned char)minted.token[17 + k]]++;
        }
    }
    unsigned expected = ROUNDS * CALLER_TOKEN_SECRET_CHARS / 62, characters = 0;
    for (int c = 0; c < 128; c++) {
        bool ours = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        assert_int_equal(total[c] != 0, ours);
        characters += ours;
        if (ours)  // 2774 of each are expected; six sigma is 316. A plain modulo would make the first eight 24 % more frequent.
            assert_in_range(total[c], expected - 320, expected + 320);
        for (size_t k = 0; ours && k < CALLER_TOKEN_SECRET_CHARS; k++)
            assert_true(seen[k][c] > 0);
    }
    assert_int_equal(characters, 62);
}

static void P8_a_plaintext_token_is_refused_and_not_repeated_in_the_error(void **state)
{
    (void)state;
    static const struct {
        const char *text, *where;
    } rows[] = {
        {"{\"version\":1,\"tokens\":[{\"id\":\"" ID "\",\"sha256\":\"" TOKEN "\",\"subject\":\"a\"}]}",
         "/tokens/0/sha256:"},
        {"{\"version\":1,\"tokens\":[{\"id\":\"" TOKEN "\",\"sha256\":\"" SHA "\",\"subject\":\"a\"}]}",
         "/tokens/0/id:"},
        {"{\"version\":1,\"tokens\":[{\"id\":\"" ID "\",\"sha256\":\"" SHA "\",\"subject\":\"" TOKEN "\"}]}",
         "/tokens/0/subject:"},
        {"{\"version\":1,\"tokens\":[{\"id\":\"" ID "\",\"sha256\":\"" SHA
         "\",\"subject\":\"a\",\"description\":\"is " TOKEN " !\"}]}",
         "/tokens/0/description:"},
        {"{\"version\":1,\"tokens\":[{\"id\":\"" ID "\",\"sha256\":\"" SHA
         "\",\"subject\":\"a\",\"roles\":[\"x\",\"" BODY "\"]}]}",  // a plaintext token without its checksum
         "/tokens/0/roles/1:"},
        {"{\"version\":1,\"tokens\":[{\"token\":\"" TOKEN "\"}]}", "/tokens/0/token:"},
        {"{\"version\":1,\"tokens\":[{\"" TOKEN "\":1}]}", "/tokens/0:"},
        {"{\"version\":1,\"" TOKEN "\":[]}", "json: /:"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err;
        assert_null(load(rows[i].text, &err));
        assert_int_equal(err.code, ERR_CONFIG);
        assert_contains(err.detail, rows[i].where);
        assert_contains(err.detail, "plain text");
        assert_null(strstr(err.detail, "0123456789AB"));
    }
}

static void P8_the_error_for_an_invalid_token_file_names_the_path_of_the_member(void **state)
{
    (void)state;
#define ENTRY(more) "{\"version\":1,\"tokens\":[{\"id\":\"" ID "\",\"sha256\":\"" SHA "\",\"subject\":\"a\"" more "}]}"
#define FIELDS(id, sha, subject) "{\"id\":" id ",\"sha256\":" sha ",\"subject\":" subject "}"
#define FILE_OF(entries) "{\"version\":1,\"tokens\":[" entries "]}"
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{\"tokens\":[]}", "/version: must be 1"},
        {"{\"version\":2,\"tokens\":[]}", "/version: must be 1"},
        {"{\"version\":\"1\"}", "/version: must be a whole number"},
        {"{\"version\":1,\"tokens\":{}}", "/tokens: must be an array"},
        {"{\"version\":1,\"token\":[]}", "/token: unknown key; did you mean \"tokens\"?"},
        {"[]", "must be an object"},
        {"{\"version\":1,\"version\":1}", "duplicate"},
        {ENTRY(",\"role\":[]"), "/tokens/0/role: unknown key; did you mean \"roles\"?"},
        {ENTRY(",\"last_used\":\"x\""), "/tokens/0/last_used: unknown key"},
        {ENTRY(",\"roles\":\"a\""), "/tokens/0/roles: must be"},
        {ENTRY(",\"roles\":[\"\"]"), "/tokens/0/roles: each must be"},
        {ENTRY(",\"roles\":[\"a,b\"]"), "/tokens/0/roles: each must be"},
        {ENTRY(",\"tenant\":\"\""), "/tokens/0/tenant: must be one line"},
        {ENTRY(",\"tenant\":\" a\""), "/tokens/0/tenant: must be one line"},
        {ENTRY(",\"description\":\"a\\nb\""), "/tokens/0/description: must be one line"},
        {ENTRY(",\"description\":\"${HOME}\""), "/tokens/0/description: \"${\" is not allowed"},
        {ENTRY(",\"created\":\"yesterday\""), "/tokens/0/created: must be a date"},
        {ENTRY(",\"expires\":\"2027-02-29\""), "/tokens/0/expires: must be a date"},
        {ENTRY(",\"expires\":\"\""), "/tokens/0/expires: must be a date"},
        {ENTRY(",\"expires\":null"), "/tokens/0/expires: must be a string"},
        {FILE_OF("{}"), "/tokens/0/id: must be"},
        {FILE_OF("{\"id\":\"" ID "\"}"), "/tokens/0/sha256: must be"},
        {FILE_OF("{\"id\":\"" ID "\",\"sha256\":\"" SHA "\"}"), "/tokens/0/subject: must be"},
        {FILE_OF(FIELDS("\"Ab3dEf9\"", "\"" SHA "\"", "\"a\"")), "/tokens/0/id: must be"},
        {FILE_OF(FIELDS("\"Ab3dEf9-\"", "\"" SHA "\"", "\"a\"")), "/tokens/0/id: must be"},
        {FILE_OF(FIELDS("\"" ID "\"", "\"abc\"", "\"a\"")), "/tokens/0/sha256: must be"},
        {FILE_OF(FIELDS("\"" ID "\"", "\"E3171a39fca0d7374796f515e8753330bd94043e39d30e6eedf4c8119a5ac78f\"", "\"a\"")),
         "/tokens/0/sha256: must be"},
        {FILE_OF(FIELDS("\"" ID "\"", "\"" SHA "\"", "\"a\\tb\"")), "/tokens/0/subject: must be one line"},
        {FILE_OF(FIELDS("\"" ID "\"", "\"" SHA "\"", "\"a\"") "," FIELDS("\"" ID "\"", "\"" OTHER "\"", "\"b\"")),
         "/tokens/1/id: is already used by an earlier token"},
        {FILE_OF(FIELDS("\"" ID "\"", "\"" SHA "\"", "\"a\"") "," FIELDS("\"other123\"", "\"" SHA "\"", "\"b\"")),
         "/tokens/1/sha256: is already used by an earlier token"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err;
        struct caller_tokens *file = load(rows[i].text, &err);
        assert_row(!file, rows[i].text);
        assert_contains(err.detail, rows[i].says);
        assert_contains(err.detail, path);
    }
}

static void P8_a_missing_token_file_is_an_error(void **state)
{
    (void)state;
    struct err err = {0};
    unlink(path);
    assert_null(caller_tokens_load(path, &err));
    assert_int_equal(err.code, ERR_CONFIG);
    assert_null(caller_tokens_edit_start(path, false, &err));
    assert_int_equal(err.code, ERR_CONFIG);
}

// ---- P9: the shape --------------------------------------------------------------------------

static void P9_a_new_token_has_the_documented_shape(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct caller_token_minted minted;
        caller_tokens_mint(&minted);
        assert_int_equal(strlen(minted.token), 67);
        assert_int_equal(CALLER_TOKEN_TOKEN_CHARS, 67);
        assert_memory_equal(minted.token, "postern_", 8);
        assert_memory_equal(minted.token + 8, minted.id, 8);
        assert_int_equal(minted.token[16], '_');
        assert_int_equal(minted.token[60], '_');
        assert_true(caller_tokens_is_token(span_of(minted.token)));
        for (size_t k = 8; k < 67; k++)
            assert_true(k == 16 || k == 60 || (minted.token[k] < 127 && isalnum((unsigned char)minted.token[k])));
    }
}

static void P9_a_token_is_found_by_its_id(void **state)
{
    (void)state;
    struct err err = {0};
    enum { MANY = 500 };
    static struct caller_token_minted all[MANY];
    unlink(path);
    struct caller_tokens_edit *edit = caller_tokens_edit_start(path, true, &err);
    for (int i = 0; i < MANY; i++) {
        char subject[16];
        snprintf(subject, sizeof subject, "s%d", i);
        caller_tokens_mint(&all[i]);
        assert_true(caller_tokens_edit_put(
            edit,
            &(struct caller_token){.id = all[i].id, .sha256 = all[i].sha256, .subject = subject, .roles = no_roles},
            &err));
    }
    assert_true(caller_tokens_edit_save(edit, &err));
    caller_tokens_edit_free(edit);
    struct caller_tokens *file = caller_tokens_load(path, &err);
    assert_int_equal(caller_tokens_count(file), MANY);
    for (int i = 0; i < MANY; i++) {
        const struct caller_token *entry;
        char subject[16];
        snprintf(subject, sizeof subject, "s%d", i);
        assert_int_equal(caller_tokens_find(file, span_of(all[i].token), NOW, &entry), PROVIDER_ACCEPT);
        assert_string_equal(entry->subject, subject);
        assert_ptr_equal(entry, caller_tokens_named(file, span_of(all[i].id)));
    }
    caller_tokens_free(file);
}

static void P9_a_credential_of_another_shape_passes_to_the_next_provider(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "postern",
        "Postern_" ID "_" SECRET "_2aQViB",
        "x" TOKEN,
        "eyJhbGciOiJSUzI1NiJ9.e30.c2ln",
        " " TOKEN,
        "gho_abc",
        ("postern-" ID),
    };
    struct caller_tokens *file = load_one("");
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(find(file, span_of(rows[i]), NOW) == PROVIDER_PASS, rows[i]);
    assert_int_equal(find(file, span_make(NULL, 0), NOW), PROVIDER_PASS);
    caller_tokens_free(file);
}

static void P9_a_damaged_or_unknown_token_is_rejected(void **state)
{
    (void)state;
    struct caller_token_minted unknown;
    caller_tokens_mint(&unknown);
    char same_id[CALLER_TOKEN_TOKEN_CHARS + 1], *huge = mem_alloc(1 << 20);
    memset(huge, 'a', (1 << 20) - 1);
    memcpy(huge, TOKEN, CALLER_TOKEN_TOKEN_CHARS);
    snprintf(same_id, sizeof same_id, "postern_" ID "_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA_0nqKFZ");
    const char *const rows[] = {
        "postern_",
        "postern_" ID,
        BODY,
        BODY "_",
        BODY "_2aQVi",
        BODY "_2aQViY",  // damaged at the end
        TOKEN "x",       // too long
        TOKEN "_",
        huge,
        "postern_" ID "-" SECRET "_2aQViB",
        "postern_aB3dEf9h_" SECRET "_2aQViB",  // damaged id
        unknown.token,                         // well-formed, but of no entry
        same_id,                               // the id of the entry and a valid checksum, but another secret
    };
    struct caller_tokens *file = load_one("");
    assert_int_equal(find(file, SPAN(TOKEN), NOW), PROVIDER_ACCEPT);
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(find(file, span_of(rows[i]), NOW) == PROVIDER_REJECT, rows[i]);
    caller_tokens_free(file);
    free(huge);
}

static void P9_a_token_with_any_single_typo_is_rejected(void **state)
{
    (void)state;
    struct caller_tokens *file = load_one("");
    assert_true(caller_tokens_is_token(SPAN(TOKEN)));
    for (size_t i = 8; i < CALLER_TOKEN_TOKEN_CHARS; i++)
        for (int c = 1; c < 256; c++) {
            char token[] = TOKEN;
            if (token[i] == (char)c)
                continue;
            token[i] = (char)c;
            assert_false(caller_tokens_is_token(span_of(token)));  // the checksum alone detects it
            assert_int_equal(find(file, span_of(token), NOW), PROVIDER_REJECT);
        }
    caller_tokens_free(file);
}

static void P9_an_empty_token_file_rejects_every_token(void **state)
{
    (void)state;
    struct err err;
    struct caller_tokens *file = load("{\"version\":1,\"tokens\":[]}", &err);
    assert_non_null(file);
    assert_int_equal(find(file, SPAN(TOKEN), NOW), PROVIDER_REJECT);
    assert_int_equal(find(file, SPAN("other"), NOW), PROVIDER_PASS);
    caller_tokens_free(file);
}

// ---- P10: the properties of a token ---------------------------------------------------------

static void P10_valid_dates_of_tokens_are_read_and_others_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t at;  // 0: refused
    } rows[] = {
        {"2027-01-31", 1801440000},
        {"2027-01-15T08:00:00Z", NOW},
        {"2027-01-15t08:00:00z", NOW},
        {"2027-01-15T10:30:00+02:30", NOW},
        {"2027-01-15T00:00:00-08:00", NOW},
        {"2027-01-15T08:00:00.999Z", NOW},
        {"2028-02-29", 1835481600},
        {"2000-01-01T00:00:00Z", 946684800},
        {"2100-02-29", 0},
        {"2027-02-29", 0},
        {"2027-00-10", 0},
        {"2027-13-10", 0},
        {"2027-04-31", 0},
        {"2027-01-00", 0},
        {"1970-01-01T00:00:00Z", 0},
        {"1969-12-31", 0},
        {"2027-1-31", 0},
        {"2027-01-31 ", 0},
        {" 2027-01-31", 0},
        {"2027-01-31T", 0},
        {"2027-01-31T24:00:00Z", 0},
        {"2027-01-31T12:60:00Z", 0},
        {"2027-01-31T12:00:61Z", 0},
        {"2027-01-31T12:00:00", 0},
        {"2027-01-31T12:00Z", 0},
        {"2027-01-31T12:00:00.Z", 0},
        {"2027-01-31T12:00:00+0200", 0},
        {"2027-01-31T12:00:00+24:00", 0},
        {"2027-01-31 12:00:00Z", 0},
        {"20270131", 0},
        {"+027-01-31", 0},
        {"90d", 0},
        {"never", 0},
        {"", 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t at = 0;
        assert_row(caller_tokens_date(rows[i].text, &at) == (rows[i].at != 0), rows[i].text);
        assert_row(!rows[i].at || at == rows[i].at, rows[i].text);
    }
    char text[32];
    caller_tokens_stamp(NOW, text);
    assert_string_equal(text, "2027-01-15T08:00:00Z");
}

static void P10_an_expired_token_is_rejected(void **state)
{
    (void)state;
    struct caller_tokens *file = load_one(",\"expires\":\"2027-01-15\"");
    int64_t end = 1800057600;  // 2027-01-16T00:00:00Z
    assert_int_equal(find(file, SPAN(TOKEN), NOW), PROVIDER_ACCEPT);
    assert_int_equal(find(file, SPAN(TOKEN), end - 1), PROVIDER_ACCEPT);
    assert_int_equal(find(file, SPAN(TOKEN), end), PROVIDER_REJECT);
    assert_int_equal(find(file, SPAN(TOKEN), INT64_MAX), PROVIDER_REJECT);
    caller_tokens_free(file);
    file = load_one(",\"expires\":\"2027-01-15T08:00:00Z\"");
    assert_int_equal(find(file, SPAN(TOKEN), NOW - 1), PROVIDER_ACCEPT);
    assert_int_equal(find(file, SPAN(TOKEN), NOW), PROVIDER_REJECT);
    caller_tokens_free(file);
    file = load_one("");
    assert_int_equal(find(file, SPAN(TOKEN), INT64_MAX), PROVIDER_ACCEPT);
    caller_tokens_free(file);
}

static void P10_an_identity_has_every_member_of_its_token_entry(void **state)
{
    (void)state;
    struct caller_tokens *file =
        load_one(",\"tenant\":\"acme\",\"roles\":[\"dev\",\"on call\"],\"expires\":\"2027-01-31\"");
    const struct caller_token *entry;
    assert_int_equal(caller_tokens_find(file, SPAN(TOKEN), NOW, &entry), PROVIDER_ACCEPT);
    struct identity *identity = caller_tokens_identity(entry);
    caller_tokens_free(file);  // the identity does not need the file
    assert_int_equal(identity->proof, IDENTITY_BEARER);
    assert_string_equal(identity->tenant, "acme");
    assert_string_equal(identity->provider, "bearer");
    assert_string_equal(identity->subject, "alice");
    assert_int_equal(identity->role_count, 2);
    assert_string_equal(identity->roles[0], "dev");
    assert_string_equal(identity->roles[1], "on call");
    assert_string_equal(identity->token_id, ID);
    assert_int_equal(identity->expires, 1801440000);
    identity_unref(identity);

    file = load_one("");
    identity = caller_tokens_identity(caller_tokens_at(file, 0));
    assert_string_equal(identity->tenant, "default");
    assert_int_equal(identity->role_count, 0);
    assert_int_equal(identity->expires, 0);
    identity_unref(identity);
    caller_tokens_free(file);
}

static void P10_a_snapshot_of_the_token_file_does_not_change(void **state)
{
    (void)state;
    struct err err = {0};
    struct caller_tokens *file = load_one("");
    assert_false(caller_tokens_stale(file));
    struct caller_tokens_edit *edit = caller_tokens_edit_start(path, false, &err);
    caller_tokens_edit_remove(edit, "unknown1");  // does nothing
    caller_tokens_edit_remove(edit, ID);
    assert_true(caller_tokens_edit_save(edit, &err));
    assert_false(caller_tokens_edit_save(edit, &err));  // the first save released the lock
    caller_tokens_edit_free(edit);
    assert_true(caller_tokens_stale(file));  // so the file is reloaded
    assert_int_equal(find(file, SPAN(TOKEN), NOW), PROVIDER_ACCEPT);
    struct caller_tokens *next = caller_tokens_load(path, &err);
    assert_int_equal(find(next, SPAN(TOKEN), NOW), PROVIDER_REJECT);
    assert_false(caller_tokens_stale(next));
    unlink(path);
    assert_true(caller_tokens_stale(next));
    caller_tokens_free(next);
    caller_tokens_free(file);
}

static void P10_the_token_file_is_written_in_canonical_form(void **state)
{
    (void)state;
    static const char *const roles[] = {"b", "a", NULL};
    static const char want[] = "{\n"
                               "  \"$schema\": \"s\",\n"
                               "  \"version\": 1,\n"
                               "  \"tokens\": [\n"
                               "    {\n"
                               "      \"id\": \"" ID "\",\n"
                               "      \"sha256\": \"" SHA "\",\n"
                               "      \"subject\": \"älice\",\n"
                               "      \"roles\": [],\n"
                               "      \"expires\": \"2027-01-31\"\n"
                               "    },\n"
                               "    {\n"
                               "      \"id\": \"other123\",\n"
                               "      \"sha256\": \"" OTHER "\",\n"
                               "      \"subject\": \"bob\",\n"
                               "      \"roles\": [\n"
                               "        \"b\",\n"
                               "        \"a\"\n"
                               "      ],\n"
                               "      \"tenant\": \"acme\",\n"
                               "      \"created\": \"2026-01-02T03:04:05Z\",\n"
                               "      \"expires\": \"2027-02-28\",\n"
                               "      \"description\": \"d\"\n"
                               "    }\n"
                               "  ]\n"
                               "}\n";
    struct err err;
    caller_tokens_free(load("{\"tokens\":[{\"expires\":\"2027-01-31\",\"subject\":\"älice\",\"sha256\":\"" SHA
                            "\",\"id\":\"" ID "\"}],\"version\":1,\"$schema\":\"s\"}",
                            &err));
    struct caller_token entry = {.id = "other123",
                                 .sha256 = OTHER,
                                 .subject = "bob",
                                 .roles = roles,
                                 .tenant = "acme",
                                 .created = "2026-01-02T03:04:05Z",
                                 .expires = "2027-02-28",
                                 .description = "d"};
    for (int i = 0; i < 2; i++) {  // the second round changes nothing
        struct caller_tokens_edit *edit = caller_tokens_edit_start(path, false, &err);
        assert_non_null(edit);
        assert_true(caller_tokens_edit_put(edit, &entry, &err));
        assert_true(caller_tokens_edit_save(edit, &err));
        caller_tokens_edit_free(edit);
        char *text = read_text();
        assert_string_equal(text, want);
        free(text);
    }
}

static mode_t mode_now(void)
{
    struct stat is;
    assert_int_equal(stat(path, &is), 0);
    return is.st_mode & 07777;
}

static bool touch(struct err *err)
{
    struct caller_tokens_edit *edit = caller_tokens_edit_start(path, true, err);
    bool ok = edit && caller_tokens_edit_save(edit, err);
    caller_tokens_edit_free(edit);
    return ok;
}

static void P10_a_new_token_file_is_private_and_an_existing_one_keeps_its_mode(void **state)
{
    (void)state;
    struct err err = {0};
    mode_t mask = umask(0);
    unlink(path);
    assert_true(touch(&err));
    assert_int_equal(mode_now(), 0600);
    assert_int_equal(chmod(path, 0644), 0);
    umask(077);
    assert_true(touch(&err));
    assert_int_equal(mode_now(), 0644);
    umask(mask);
}

static void P10_a_link_to_the_token_file_is_followed_and_not_replaced(void **state)
{
    (void)state;
    struct err err = {0};
    char target[96];
    struct stat is;
    snprintf(target, sizeof target, "%s/real.json", directory);
    unlink(path);
    assert_true(touch(&err));
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink("real.json", path), 0);
    assert_true(touch(&err));
    assert_int_equal(lstat(path, &is), 0);
    assert_true(S_ISLNK(is.st_mode));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(target), 0);
}

static void P10_a_failed_save_leaves_the_token_file_unchanged(void **state)
{
    (void)state;
    struct err err = {0};
    struct rlimit old, tight;
    caller_tokens_free(load_one(""));
    char *before = read_text();
    struct caller_tokens_edit *edit = caller_tokens_edit_start(path, false, &err);
    size_t files = files_there();
    caller_tokens_edit_remove(edit, ID);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight =
        (struct rlimit){.rlim_cur = 10, .rlim_max = old.rlim_max};  // a write fails after ten bytes, as on a full disk
    void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    bool saved = caller_tokens_edit_save(edit, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, was);
    caller_tokens_edit_free(edit);
    assert_false(saved);
    assert_int_equal(err.code, ERR_SYSTEM);
    char *after = read_text();
    assert_string_equal(after, before);
    assert_int_equal(files_there(), files);  // no temporary file is left
    free(before);
    free(after);
}

static void P10_a_save_does_not_overwrite_a_concurrent_change(void **state)
{
    (void)state;
    struct err err = {0};
    caller_tokens_free(load_one(""));
    struct caller_tokens_edit *edit = caller_tokens_edit_start(path, false, &err);
    write_text("{\"version\":1,\"tokens\":[]}");  // as an editor does, without a lock
    assert_false(caller_tokens_edit_save(edit, &err));
    assert_contains(err.detail, "another program changed the file in the meantime");
    caller_tokens_edit_free(edit);
    char *text = read_text();
    assert_string_equal(text, "{\"version\":1,\"tokens\":[]}");
    free(text);
}

static void P10_an_entry_that_could_not_be_read_back_is_not_written(void **state)
{
    (void)state;
    static const char *const bad_role[] = {"a\nb", NULL};
    static const char *const bytes[] = {"\xff", NULL};
    struct caller_token good = {.id = "other123", .sha256 = OTHER, .subject = "bob", .roles = no_roles};
    struct caller_token rows[] = {good, good, good, good, good, good, good};
    rows[0].subject = NULL;
    rows[1].subject = "";
    rows[2].roles = bad_role;
    rows[3].roles = bytes;
    rows[4].expires = "soon";
    rows[5].description = "my token " TOKEN;
    rows[6].description = "\xc3";
    struct err err = {0};
    caller_tokens_free(load_one(""));
    struct caller_tokens_edit *edit = caller_tokens_edit_start(path, false, &err);
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_false(caller_tokens_edit_put(edit, &rows[i], &err));
        assert_null(strstr(err.detail, "0123456789AB"));
    }
    good.sha256 = SHA;  // valid by itself, but another entry has the digest
    assert_true(caller_tokens_edit_put(edit, &good, &err));
    assert_false(caller_tokens_edit_save(edit, &err));
    assert_contains(err.detail, "/tokens/1/sha256: is already used by an earlier token");
    caller_tokens_edit_free(edit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P8_the_file_has_the_digest_of_the_whole_token_and_no_part_of_its_secret),
        cmocka_unit_test(P8_a_secret_has_256_bits),
        cmocka_unit_test(P8_a_plaintext_token_is_refused_and_not_repeated_in_the_error),
        cmocka_unit_test(P8_the_error_for_an_invalid_token_file_names_the_path_of_the_member),
        cmocka_unit_test(P8_a_missing_token_file_is_an_error),
        cmocka_unit_test(P9_a_new_token_has_the_documented_shape),
        cmocka_unit_test(P9_a_token_is_found_by_its_id),
        cmocka_unit_test(P9_a_credential_of_another_shape_passes_to_the_next_provider),
        cmocka_unit_test(P9_a_damaged_or_unknown_token_is_rejected),
        cmocka_unit_test(P9_a_token_with_any_single_typo_is_rejected),
        cmocka_unit_test(P9_an_empty_token_file_rejects_every_token),
        cmocka_unit_test(P10_valid_dates_of_tokens_are_read_and_others_refused),
        cmocka_unit_test(P10_an_expired_token_is_rejected),
        cmocka_unit_test(P10_an_identity_has_every_member_of_its_token_entry),
        cmocka_unit_test(P10_a_snapshot_of_the_token_file_does_not_change),
        cmocka_unit_test(P10_the_token_file_is_written_in_canonical_form),
        cmocka_unit_test(P10_a_new_token_file_is_private_and_an_existing_one_keeps_its_mode),
        cmocka_unit_test(P10_a_link_to_the_token_file_is_followed_and_not_replaced),
        cmocka_unit_test(P10_a_failed_save_leaves_the_token_file_unchanged),
        cmocka_unit_test(P10_a_save_does_not_overwrite_a_concurrent_change),
        cmocka_unit_test(P10_an_entry_that_could_not_be_read_back_is_not_written),
    };
    return cmocka_run_group_tests(tests, set_up, remove_directory);
}
