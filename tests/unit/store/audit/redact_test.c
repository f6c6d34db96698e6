// Tests the redaction of recorded arguments: keys of secrets, pointers to secrets, and arguments that are too long or not an object.
#include "base/json.h"
#include "base/mem.h"
#include "base/scan.h"
#include "redact.h"
#include "store/audit/audit.h"
#include "unit.h"

#define HIDDEN REDACT_MARK

static char *const own_keys[] = {"Badge Number", "ключ", NULL};
static char *const pointers[] = {"/user/mail", "/items/*/pin", "/list/1", "/a~1b/~0c", "/any/*/x/y", "/", NULL};

static struct span redact(const char *json, size_t len, struct buf *out)
{
    struct audit_redact config = {(char **)(uintptr_t)own_keys, (char **)(uintptr_t)pointers};
    struct redact *rules = redact_new(&config);
    buf_clear(out);
    redact_put(rules, span_make(json, len), out);
    redact_free(rules);
    return buf_span(out);
}

// ---- the truth table ------------------------------------------------------------------------

// clang-format off
static const struct {
    const char *label, *in, *out;
} table[] = {
    {"nothing to hide",       "{\"a\":1,\"b\":[true,null,\"x\"]}",       "{\"a\":1,\"b\":[true,null,\"x\"]}"},
    {"empty",                 "{}",                                      "{}"},
    {"other bytes stay as sent", " { \"a\" :\n[ 1 , 2 ] ,\"pwd\" : 3 } ", "{ \"a\" :\n[ 1 , 2 ] ,\"pwd\" : " HIDDEN " }"},
    {"numbers stay as sent",  "{\"a\":1.50e+3,\"b\":12345678901234567890}", "{\"a\":1.50e+3,\"b\":12345678901234567890}"},
    {"escapes in values stay", "{\"a\":\"\\u0000\\\"\\ud83d\\ude00\"}",  "{\"a\":\"\\u0000\\\"\\ud83d\\ude00\"}"},

    {"password",              "{\"password\":\"p\"}",                    "{\"password\":" HIDDEN "}"},
    {"case",                  "{\"PassWord\":\"p\"}",                    "{\"PassWord\":" HIDDEN "}"},
    {"a longer name",         "{\"db_password_2\":\"p\"}",               "{\"db_password_2\":" HIDDEN "}"},
    {"camel case",            "{\"accessToken\":\"p\"}",                 "{\"accessToken\":" HIDDEN "}"},
    {"snake",                 "{\"api_key\":\"p\"}",                     "{\"api_key\":" HIDDEN "}"},
    {"kebab",                 "{\"X-Api-Key\":\"p\"}",                   "{\"X-Api-Key\":" HIDDEN "}"},
    {"dots",                  "{\"api.key\":\"p\"}",                     "{\"api.key\":" HIDDEN "}"},
    {"blanks",                "{\"API key\":\"p\"}",                     "{\"API key\":" HIDDEN "}"},
    {"authorization",         "{\"Authorization\":\"Bearer x\"}",        "{\"Authorization\":" HIDDEN "}"},
    {"cookies",               "{\"set-cookie\":[\"a\",\"b\"]}",          "{\"set-cookie\":" HIDDEN "}"},
    {"plural",                "{\"secrets\":{\"a\":\"p\"}}",             "{\"secrets\":" HIDDEN "}"},
    {"a number",              "{\"pwd\":1234}",                          "{\"pwd\":" HIDDEN "}"},
    {"null",                  "{\"pwd\":null}",                          "{\"pwd\":" HIDDEN "}"},
    {"an own word",           "{\"badge_number\":1,\"badge\":2}",        "{\"badge_number\":" HIDDEN ",\"badge\":2}"},
    {"an own word, no ASCII", "{\"мой-ключ\":1}",                        "{\"мой-ключ\":" HIDDEN "}"},
    {"only separators",       "{\"_-.\":1}",                             "{\"_-.\":1}"},

    {"an escape in the key",  "{\"pass\\u0077ord\":\"p\"}",              "{\"pass\\u0077ord\":" HIDDEN "}"},
    {"all of it escaped",     "{\"\\u0050\\u0041\\u0053\\u0053WORD\":1}", "{\"\\u0050\\u0041\\u0053\\u0053WORD\":" HIDDEN "}"},
    {"an escaped separator",  "{\"api\\u005fkey\":1}",                   "{\"api\\u005fkey\":" HIDDEN "}"},
    {"a NUL in the key",      "{\"pass\\u0000word\":1,\"x\\u0000token\":2}", "{\"pass\\u0000word\":1,\"x\\u0000token\":" HIDDEN "}"},
    {"spelt twice",           "{\"token\":1,\"t\\u006fken\":2,\"TOKEN\":3}",
                              "{\"token\":" HIDDEN ",\"t\\u006fken\":" HIDDEN ",\"TOKEN\":" HIDDEN "}"},

    {"nested",                "{\"a\":{\"b\":{\"secret\":\"p\",\"c\":1}}}", "{\"a\":{\"b\":{\"secret\":" HIDDEN ",\"c\":1}}}"},
    {"in arrays",             "{\"a\":[[{\"jwt\":\"p\"}],{\"jwt\":\"p\"},1]}", "{\"a\":[[{\"jwt\":" HIDDEN "}],{\"jwt\":" HIDDEN "},1]}"},
    {"a value, not a key",    "{\"a\":\"password\"}",                    "{\"a\":\"password\"}"},

    {"a pointer",             "{\"user\":{\"mail\":\"m\",\"name\":\"n\"},\"mail\":\"n\"}",
                              "{\"user\":{\"mail\":" HIDDEN ",\"name\":\"n\"},\"mail\":\"n\"}"},
    {"a pointer is exact",    "{\"user\":{\"Mail\":\"m\"},\"User\":{\"mail\":\"m\"}}",
                              "{\"user\":{\"Mail\":\"m\"},\"User\":{\"mail\":\"m\"}}"},
    {"a pointer, escaped",    "{\"us\\u0065r\":{\"ma\\u0069l\":[1]}}",   "{\"us\\u0065r\":{\"ma\\u0069l\":" HIDDEN "}}"},
    {"a pointer, deeper",     "{\"x\":{\"user\":{\"mail\":\"m\"}}}",     "{\"x\":{\"user\":{\"mail\":\"m\"}}}"},
    {"all elements",          "{\"items\":[{\"pin\":1,\"n\":2},{\"pin\":3},[],\"pin\"]}",
                              "{\"items\":[{\"pin\":" HIDDEN ",\"n\":2},{\"pin\":" HIDDEN "},[],\"pin\"]}"},
    {"all members",           "{\"items\":{\"k\":{\"pin\":1}}}",         "{\"items\":{\"k\":{\"pin\":" HIDDEN "}}}"},
    {"one element",           "{\"list\":[0,1,2]}",                      "{\"list\":[0," HIDDEN ",2]}"},
    {"a number as a name", "{\"list\":{\"1\":0,\"01\":1}}",         "{\"list\":{\"1\":" HIDDEN ",\"01\":1}}"},
    {"~0 and ~1",             "{\"a/b\":{\"~c\":1,\"c\":2}}",            "{\"a/b\":{\"~c\":" HIDDEN ",\"c\":2}}"},
    {"steps after *",         "{\"any\":[{\"x\":{\"y\":1,\"z\":2}},{\"y\":3}]}", "{\"any\":[{\"x\":{\"y\":" HIDDEN ",\"z\":2}},{\"y\":3}]}"},
    {"the empty key",         "{\"\":1,\"b\":{\"\":2}}",                 "{\"\":" HIDDEN ",\"b\":{\"\":2}}"},
};
// clang-format on

static void secret_members_are_redacted_as_in_the_table(void **state)
{
    (void)state;
    struct buf out = {0};
    for (size_t i = 0; i < COUNT(table); i++) {
        struct span whole;
        struct err err = {0};
        assert_row(scan_document(span_of(table[i].in), false, &whole, &err), table[i].label);
        struct span got = redact(whole.at, whole.len, &out);
        assert_span(got, span_of(table[i].out), table[i].label);
        assert_row(scan_document(got, false, &whole, &err), table[i].label);
    }
    buf_release(&out);
}

// ---- markers in place of the arguments ------------------------------------------------------

static void marked(struct span got, const char *why, const char *json, size_t len)
{
    char digest[AUDIT_HASH_CHARS + 1];
    struct buf want = {0};
    secret_digest_hex(span_make(json, len), digest);
    buf_printf(&want, "\"[%s: %zu bytes, sha256 %s]\"", why, len, digest);
    assert_span(got, buf_span(&want), why);
    buf_release(&want);
}

static void arguments_that_are_too_long_become_a_marker(void **state)
{
    (void)state;
    struct buf json = {0}, out = {0};
    for (size_t pad = REDACT_MAX - 12; pad <= REDACT_MAX; pad++) {
        buf_clear(&json);
        buf_put_text(&json, "{\"a\":\"");
        for (size_t i = 0; i < pad; i++)
            buf_put_char(&json, 'x');
        buf_put_text(&json, "\"}");
        struct span got = redact(json.at, json.len, &out);
        if (json.len <= REDACT_MAX)
            assert_span(got, buf_span(&json), "whole");
        else
            marked(got, "too long", json.at, json.len);
    }
    buf_clear(&json);  // too long before redaction, but not after it
    buf_put_text(&json, "{\"secret\":\"");
    for (size_t i = 0; i < 2 * REDACT_MAX; i++)
        buf_put_char(&json, 'x');
    buf_put_text(&json, "\"}");
    assert_span(redact(json.at, json.len, &out), SPAN("{\"secret\":" HIDDEN "}"), "a long secret");
    buf_release(&json);
    buf_release(&out);
}

static void arguments_that_are_not_an_object_become_a_marker(void **state)
{
    (void)state;
    static const char *const rows[] = {"\"hunter2\"", "[\"hunter2\"]", "7", "null", "true"};
    struct buf out = {0};
    for (size_t i = 0; i < COUNT(rows); i++)
        marked(redact(rows[i], strlen(rows[i]), &out), "not an object", rows[i], strlen(rows[i]));
    buf_release(&out);
}

static void deeply_nested_arguments_are_redacted(void **state)
{
    (void)state;
    struct buf json = {0}, out = {0};
    struct span whole;
    for (int i = 0; i < SCAN_DEPTH_MAX - 2; i++)
        buf_put_text(&json, i % 2 ? "[" : "{\"a\":");
    buf_put_text(&json, "{\"token\":1}");
    for (int i = SCAN_DEPTH_MAX - 3; i >= 0; i--)
        buf_put_char(&json, i % 2 ? ']' : '}');
    assert_true(scan_document(buf_span(&json), true, &whole, &(struct err){0}));
    assert_contains((redact(whole.at, whole.len, &out), buf_text(&out)), "{\"token\":" HIDDEN "}");
    buf_release(&json);
    buf_release(&out);
}

// ---- options --------------------------------------------------------------------------------

static void refuse(const char *json, const char *why)
{
    struct audit_redact config = {0};
    struct err err = {0};
    json_t *tree = json_parse(span_of(json), "test", &err);
    assert_non_null(tree);
    assert_false(option_parse(&redact_options, tree, &config,
                              &(struct option_place){.file = "f", .path = "/audit/redact"}, &err));
    assert_contains(err.detail, why);
    option_release(&redact_options, &config);
    json_decref(tree);
}

static void invalid_redaction_options_are_refused(void **state)
{
    (void)state;
    refuse("{\"pointers\":[\"/a\",\"a/b\"]}", "f: /audit/redact/pointers/1: not a JSON Pointer");
    refuse("{\"pointers\":[\"/a~2\"]}", "not a JSON Pointer");
    refuse("{\"pointers\":[\"/a~\"]}", "not a JSON Pointer");
    refuse("{\"pointers\":[\"\"]}", "not a JSON Pointer");
    refuse("{\"keys\":[\"x\",\"_-\"]}", "f: /audit/redact/keys/1: has no letters");
    refuse("{\"key\":[]}", "did you mean");
    struct buf many = {0};
    buf_put_text(&many, "{\"pointers\":[\"/0\"");
    for (int i = 1; i <= REDACT_POINTERS_MAX; i++)
        buf_printf(&many, ",\"/%d\"", i);
    buf_put_text(&many, "]}");
    refuse(buf_text(&many), "at most 64 are allowed");
    buf_release(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secret_members_are_redacted_as_in_the_table),
        cmocka_unit_test(arguments_that_are_too_long_become_a_marker),
        cmocka_unit_test(arguments_that_are_not_an_object_become_a_marker),
        cmocka_unit_test(deeply_nested_arguments_are_redacted),
        cmocka_unit_test(invalid_redaction_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
