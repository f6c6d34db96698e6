// Tests identity assertions: their claims, when an assertion is signed again, and when none is signed.
#include "../login/assertion_options.h"
#include "auth/access/identity_assertion.h"
#include "base/json.h"
#include "base/secret.h"
#include "unit.h"
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOW 1700000000

static char key_file[] = "/tmp/postern-assertion-XXXXXX";
static struct assertion_options options = {
    .key_file = key_file, .algorithm = "ES256", .key_id = "k1", .header = "X-Who", .lifetime_ms = 60000};

static struct assertion_keys *keys[32];
static size_t key_count;

static int make_key(void **state)
{
    (void)state;
    int fd = mkstemp(key_file);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    bool ok = file && key && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1;
    EVP_PKEY_free(key);
    if (file)
        fclose(file);
    return ok ? 0 : 1;
}

static int drop_key(void **state)
{
    (void)state;
    while (key_count)
        assertion_keys_unref(keys[--key_count]);
    return unlink(key_file);
}

static struct identity *person(const char *subject, const char *role)
{
    struct identity *who = identity_new(IDENTITY_BEARER, "acme", "bearer", subject);
    if (role)
        identity_add_role(who, span_of(role));
    return who;
}

static struct identity_assertion *assertion_of(const struct identity *owner, const char *issuer)
{
    struct assertion_keys *own = assertion_keys_new();  // new, because the test may have changed the file
    assert_true(key_count < sizeof keys / sizeof *keys);
    keys[key_count++] = own;
    assertion_keys_add(own, &options);
    struct identity_assertion_spec spec = {&options, assertion_keys_find(own, &options), issuer,
                                           "https://tracker.example/mcp", owner};
    return identity_assertion_new(&spec);
}

// Part 0 (header) or 1 (claims) of a JWT.
static json_t *part(const char *jwt, int which)
{
    struct buf text = {0};
    const char *from = which ? strchr(jwt, '.') + 1 : jwt;
    size_t len = (size_t)(strchr(from, '.') - from);
    unsigned char decoded[2048];
    for (size_t i = 0; i < len; i++)
        buf_put_char(&text, from[i] == '-' ? '+' : from[i] == '_' ? '/' : from[i]);
    while (text.len % 4)
        buf_put_char(&text, 'A');
    int got = EVP_DecodeBlock(decoded, (const unsigned char *)text.at, (int)text.len);
    assert_true(got > 0);
    json_t *tree = json_loadb((char *)decoded, (size_t)got, JSON_DISABLE_EOF_CHECK, NULL);
    buf_release(&text);
    assert_non_null(tree);
    return tree;
}

static void assert_claim(const char *jwt, const char *claim, const char *value)
{
    json_t *claims = part(jwt, 1);
    assert_string_equal(json_string_value(json_object_get(claims, claim)), value);
    json_decref(claims);
}

static long long number(const char *jwt, const char *claim)
{
    json_t *claims = part(jwt, 1);
    long long value = json_integer_value(json_object_get(claims, claim));
    json_decref(claims);
    return value;
}

static size_t role_count(const char *jwt)
{
    json_t *claims = part(jwt, 1);
    size_t count = json_array_size(json_object_get(claims, "roles"));
    json_decref(claims);
    return count;
}

static void an_assertion_has_the_claims_of_its_caller(void **state)
{
    (void)state;
    struct err err;
    struct identity *ana = person("ana", "dev");
    struct identity_assertion *assertion = assertion_of(ana, "https://gate.example");
    const char *jwt = identity_assertion_text(assertion, ana, NOW, &err);
    assert_non_null(jwt);
    assert_string_equal(identity_assertion_header(assertion), "X-Who");
    assert_claim(jwt, "iss", "https://gate.example");
    assert_claim(jwt, "aud", "https://tracker.example/mcp");
    assert_claim(jwt, "sub", "bearer:ana");
    assert_claim(jwt, "tenant", "acme");
    assert_int_equal(number(jwt, "iat"), NOW);
    assert_int_equal(number(jwt, "exp"), NOW + 60);
    assert_int_equal(role_count(jwt), 1);
    json_t *head = part(jwt, 0);
    assert_string_equal(json_string_value(json_object_get(head, "alg")), "ES256");
    assert_string_equal(json_string_value(json_object_get(head, "kid")), "k1");
    json_decref(head);
    identity_assertion_free(assertion);
    identity_unref(ana);
}

static void an_assertion_without_a_call_claims_no_roles(void **state)
{
    (void)state;
    struct err err;
    struct identity *ana = person("ana", "admin");
    struct identity_assertion *assertion = assertion_of(ana, "https://gate.example");
    const char *jwt = identity_assertion_text(assertion, NULL, NOW, &err);
    assert_claim(jwt, "sub", "bearer:ana");
    assert_int_equal(role_count(jwt), 0);
    assert_int_equal(role_count(identity_assertion_text(assertion, ana, NOW, &err)), 1);
    assert_int_equal(role_count(identity_assertion_text(assertion, NULL, NOW, &err)), 0);
    identity_assertion_free(assertion);
    identity_unref(ana);
}

// It is signed again earlier for other claims, and when the clock went back.
static void an_assertion_is_kept_for_half_its_life(void **state)
{
    (void)state;
    static const struct row {
        const char *label;
        const char *role;
        int64_t after;
        bool kept;
    } rows[] = {
        {"at once", "dev", 0, true},
        {"before half its life", "dev", 29, true},
        {"at half its life", "dev", 30, false},
        {"with another role", "admin", 1, false},
        {"without roles", NULL, 1, false},
        {"an hour earlier", "dev", -3600, false},
    };
    struct err err;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct identity *first = person("ana", "dev"), *then = person("ana", rows[i].role);
        struct identity_assertion *assertion = assertion_of(first, "https://gate.example");
        char *before = strdup(identity_assertion_text(assertion, first, NOW, &err));
        const char *later = identity_assertion_text(assertion, then, NOW + rows[i].after, &err);
        assert_row(later && (strcmp(before, later) == 0) == rows[i].kept, rows[i].label);
        free(before);
        identity_assertion_free(assertion);
        identity_unref(first);
        identity_unref(then);
    }
}

static void an_assertion_expires_with_the_credential_of_its_caller(void **state)
{
    (void)state;
    struct err err;
    struct identity *ana = person("ana", "dev");
    ana->expires = NOW + 10;
    struct identity_assertion *assertion = assertion_of(ana, "https://gate.example");
    assert_int_equal(number(identity_assertion_text(assertion, ana, NOW, &err), "exp"), NOW + 10);
    identity_assertion_free(assertion);
    identity_unref(ana);
}

static void an_assertion_is_not_signed_for_another_caller_or_with_an_unusable_key(void **state)
{
    (void)state;
    struct err err = {0};
    struct identity *ana = person("ana", NULL), *bob = person("bob", NULL);
    struct identity *nobody = identity_new(IDENTITY_ANONYMOUS, "acme", "none", "anonymous");
    struct identity_assertion *of_ana = assertion_of(ana, "https://gate.example");
    struct identity_assertion *of_nobody = assertion_of(nobody, "https://gate.example");
    struct identity_assertion *without_issuer = assertion_of(ana, NULL);
    assert_int_equal(chmod(key_file, 0640), 0);
    struct identity_assertion *open_key = assertion_of(ana, "https://gate.example");
    assert_int_equal(chmod(key_file, 0600), 0);
    options.algorithm = "RS256";
    struct identity_assertion *wrong_kind = assertion_of(ana, "https://gate.example");
    options.algorithm = "ES256";
    assert_null(identity_assertion_text(of_ana, bob, NOW, &err));  // the connection belongs to ana
    assert_null(identity_assertion_text(of_nobody, NULL, NOW, &err));
    assert_null(identity_assertion_text(without_issuer, ana, NOW, &err));
    assert_null(identity_assertion_text(open_key, ana, NOW, &err));
    assert_null(identity_assertion_text(wrong_kind, ana, NOW, &err));
    identity_assertion_free(of_ana);
    identity_assertion_free(of_nobody);
    identity_assertion_free(without_issuer);
    identity_assertion_free(open_key);
    identity_assertion_free(wrong_kind);
    identity_unref(ana);
    identity_unref(bob);
    identity_unref(nobody);
}

static void options_of_an_assertion_are_checked(void **state)
{
    (void)state;
    static const struct row {
        const char *text;
        bool good;
    } rows[] = {
        {"{}", true},
        {"{\"key_file\":\"k\"}", true},
        {"{\"key_file\":\"k\",\"algorithm\":\"none\"}", false},
        {"{\"key_file\":\"k\",\"algorithm\":\"HS256\"}", false},
        {"{\"key_file\":\"k\",\"header\":\"authorization\"}", false},
        {"{\"key_file\":\"k\",\"header\":\"Mcp-Session-Id\"}", false},
        {"{\"key_file\":\"k\",\"header\":\"X: y\\r\\nZ\"}", false},
        {"{\"key_file\":\"k\",\"header\":\"\"}", false},
        {"{\"key_file\":\"k\",\"lifetime\":1}", false},
        {"{\"audience\":\"a\"}", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct assertion_options parsed = {0};
        struct err err;
        json_t *tree = json_loads(rows[i].text, 0, NULL);
        bool ok = option_parse(&assertion_options_table, tree, &parsed, &(struct option_place){.file = "f", .path = ""},
                               &err);
        assert_row(ok == rows[i].good, rows[i].text);
        option_release(&assertion_options_table, &parsed);
        json_decref(tree);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_assertion_has_the_claims_of_its_caller),
        cmocka_unit_test(an_assertion_without_a_call_claims_no_roles),
        cmocka_unit_test(an_assertion_is_kept_for_half_its_life),
        cmocka_unit_test(an_assertion_expires_with_the_credential_of_its_caller),
        cmocka_unit_test(an_assertion_is_not_signed_for_another_caller_or_with_an_unusable_key),
        cmocka_unit_test(options_of_an_assertion_are_checked),
    };
    return cmocka_run_group_tests(tests, make_key, drop_key);
}
