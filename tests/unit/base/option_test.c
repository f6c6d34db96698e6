// Tests option tables: every type, bounds, errors that name file and path, expansion of variables, and showing.
#include "base/option_compare.h"
#include "option.h"
#include "unit.h"

// ---- a table with one row of each type ------------------------------------------------------

struct inner {
    char *name;
    int64_t level;
};

struct sample {
    bool flag;
    int64_t number, size, wait, rest;
    char *text, *maybe;
    int mode;
    char **words;
    struct option_pairs pairs;
    struct inner one;
    struct option_items many, named;
    char *password;
    struct option_pairs hidden;
};

static const char *const modes[] = {"off", "slow", "fast", NULL};

static const struct option inner_rows[] = {
    {.name = "level", .type = OPTION_INT, .offset = offsetof(struct inner, level), .fallback = "3", .min = 1, .max = 9},
    {0},
};
static const struct option_table inner_table = {"Inner", sizeof(struct inner), inner_rows, NULL};

#define AT(member) offsetof(struct sample, member)
static const struct option sample_rows[] = {
    {.name = "flag", .type = OPTION_BOOL, .offset = AT(flag), .fallback = "true", .help = "A flag."},
    {.name = "number", .type = OPTION_INT, .offset = AT(number), .fallback = "5", .min = 1, .max = 10},
    {.name = "size", .type = OPTION_SIZE, .offset = AT(size), .fallback = "\"1KiB\"", .min = 16, .max = 1 << 20},
    {.name = "wait", .type = OPTION_DURATION, .offset = AT(wait), .fallback = "2", .min = 100, .max = 60000},
    {.name = "rest",
     .type = OPTION_DURATION,
     .offset = AT(rest),
     .fallback = "\"slow\"",
     .min = 1,
     .max = 9000,
     .choices = modes},
    {.name = "text", .type = OPTION_STRING, .offset = AT(text)},
    {.name = "maybe", .type = OPTION_STRING_OR_FALSE, .offset = AT(maybe)},
    {.name = "mode", .type = OPTION_ENUM, .offset = AT(mode), .fallback = "\"slow\"", .choices = modes},
    {.name = "words", .type = OPTION_STRINGS, .offset = AT(words)},
    {.name = "pairs", .type = OPTION_PAIRS, .offset = AT(pairs)},
    {.name = "one", .type = OPTION_OBJECT, .offset = AT(one), .sub = &inner_table},
    {.name = "many", .type = OPTION_OBJECTS, .offset = AT(many), .sub = &inner_table},
    {.name = "named", .type = OPTION_NAMED_OBJECTS, .offset = AT(named), .sub = &inner_table},
    {.name = "password", .type = OPTION_STRING, .offset = AT(password), .secret = true},
    {.name = "hidden", .type = OPTION_PAIRS, .offset = AT(hidden), .secret = true},
    {0},
};
#undef AT

static bool check(void *object, const struct option_place *place, struct err *err)
{
    const struct sample *sample = object;
    return sample->number != 7 || err_set(err, ERR_CONFIG, "%s: %s/number: not 7", place->file, place->path);
}

static const struct option_table sample_table = {"Sample", sizeof(struct sample), sample_rows, check};
static const struct option_place place = {.file = "f.json", .path = ""};

static bool parse(const char *text, struct sample *sample, struct err *err)
{
    *sample = (struct sample){0};
    *err = (struct err){0};
    json_t *tree = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_row(tree != NULL, text);
    bool ok = option_parse(&sample_table, tree, sample, &place, err);
    json_decref(tree);
    return ok;
}

// ---- parsing --------------------------------------------------------------------------------

static void absent_options_have_their_defaults(void **state)
{
    (void)state;
    struct sample s;
    struct err err;
    assert_true(parse("{\"$schema\":\"x\"}", &s, &err));
    assert_true(s.flag);
    assert_int_equal(s.number, 5);
    assert_int_equal(s.size, 1024);
    assert_int_equal(s.wait, 2000);
    assert_int_equal(s.rest, -2);
    assert_int_equal(s.mode, 1);
    assert_int_equal(s.one.level, 3);
    assert_null(s.text);
    assert_null(s.maybe);
    assert_null(s.words);
    assert_int_equal(s.pairs.count + s.many.count + s.named.count, 0);
    option_release(&sample_table, &s);
}

static void every_type_of_option_is_read(void **state)
{
    (void)state;
    struct sample s;
    struct err err;
    assert_true(parse("{\"flag\":false,\"number\":10,\"size\":\"64KiB\",\"wait\":\"1m\",\"rest\":\"2s\",\"text\":\"t\","
                      "\"maybe\":false,"
                      "\"mode\":\"fast\",\"words\":[\"a\",\"\"],\"pairs\":{\"A\":\"1\",\"B\":\"2\"},"
                      "\"one\":{\"level\":4},\"many\":[{},{\"level\":5}],\"named\":{\"x\":{\"level\":6}}}",
                      &s, &err));
    assert_false(s.flag);
    assert_int_equal(s.number, 10);
    assert_int_equal(s.size, 65536);
    assert_int_equal(s.wait, 60000);
    assert_int_equal(s.rest, 2000);
    assert_string_equal(s.text, "t");
    assert_string_equal(s.maybe, "");
    assert_int_equal(s.mode, 2);
    assert_string_equal(s.words[0], "a");
    assert_string_equal(s.words[1], "");
    assert_null(s.words[2]);
    assert_int_equal(s.pairs.count, 2);
    assert_string_equal(s.pairs.at[1].name, "B");
    assert_string_equal(s.pairs.at[1].value, "2");
    assert_int_equal(s.one.level, 4);
    assert_int_equal(s.many.count, 2);
    assert_int_equal(((struct inner *)s.many.at)[0].level, 3);
    assert_int_equal(((struct inner *)s.many.at)[1].level, 5);
    assert_string_equal(((struct inner *)s.named.at)[0].name, "x");
    assert_int_equal(((struct inner *)s.named.at)[0].level, 6);
    option_release(&sample_table, &s);
}

// Invalid values, the path that the error must name, and the valid value that it must describe.
static const struct wrong_row {
    const char *text, *path, *says;
} wrongs[] = {
    {"[]", "f.json: /:", "must be an object"},
    {"1", "f.json: /:", "must be an object"},
    {"{\"flag\":1}", "f.json: /flag:", "true or false"},
    {"{\"flag\":null}", "f.json: /flag:", "true or false"},
    {"{\"number\":0}", "f.json: /number:", "between 1 and 10"},
    {"{\"number\":11}", "f.json: /number:", "between 1 and 10"},
    {"{\"number\":-1}", "f.json: /number:", "between 1 and 10"},
    {"{\"number\":1.5}", "f.json: /number:", "a whole number"},
    {"{\"number\":\"5\"}", "f.json: /number:", "a whole number"},
    {"{\"number\":7}", "f.json: /number:", "not 7"},
    {"{\"rest\":\"never\"}", "f.json: /rest:", "or \"off\", or \"slow\", or \"fast\""},
    {"{\"rest\":-1}", "f.json: /rest:", "a duration"},
    {"{\"rest\":10}", "f.json: /rest:", "between 1 and 9000 ms"},
    {"{\"size\":15}", "f.json: /size:", "between 16 and 1048576 bytes"},
    {"{\"size\":\"2MiB\"}", "f.json: /size:", "between 16 and 1048576 bytes"},
    {"{\"size\":\"1e15GiB\"}", "f.json: /size:", "must be"},
    {"{\"size\":\"nan\"}", "f.json: /size:", "must be"},
    {"{\"size\":\"4 apples\"}", "f.json: /size:", "\"64KiB\""},
    {"{\"size\":1.5}", "f.json: /size:", "\"64KiB\""},
    {"{\"size\":true}", "f.json: /size:", "\"64KiB\""},
    {"{\"wait\":0.05}", "f.json: /wait:", "between 100 and 60000 ms"},
    {"{\"wait\":\"2h\"}", "f.json: /wait:", "between 100 and 60000 ms"},
    {"{\"wait\":-1}", "f.json: /wait:", "\"500ms\""},
    {"{\"wait\":1e300}", "f.json: /wait:", "\"500ms\""},
    {"{\"wait\":\"5\"}", "f.json: /wait:", "\"500ms\""},
    {"{\"wait\":[]}", "f.json: /wait:", "\"500ms\""},
    {"{\"text\":1}", "f.json: /text:", "a string"},
    {"{\"text\":false}", "f.json: /text:", "a string"},
    {"{\"maybe\":true}", "f.json: /maybe:", "a string or false"},
    {"{\"mode\":\"Fast\"}", "f.json: /mode:", "one of \"off\", \"slow\", \"fast\""},
    {"{\"mode\":2}", "f.json: /mode:", "one of \"off\", \"slow\", \"fast\""},
    {"{\"words\":\"a\"}", "f.json: /words:", "an array of strings"},
    {"{\"words\":[\"a\",1]}", "f.json: /words:", "an array of strings"},
    {"{\"pairs\":{\"a\":1}}", "f.json: /pairs:", "an object of strings"},
    {"{\"pairs\":[]}", "f.json: /pairs:", "an object of strings"},
    {"{\"one\":[]}", "f.json: /one:", "must be an object"},
    {"{\"one\":{\"level\":10}}", "f.json: /one/level:", "between 1 and 9"},
    {"{\"many\":{}}", "f.json: /many:", "an array of objects"},
    {"{\"many\":[{},{\"level\":0}]}", "f.json: /many/1/level:", "between 1 and 9"},
    {"{\"many\":[1]}", "f.json: /many/0:", "must be an object"},
    {"{\"named\":[]}", "f.json: /named:", "an object of objects"},
    {"{\"named\":{\"a\":{},\"b\":{\"level\":\"x\"}}}", "f.json: /named/b/level:", "a whole number"},
    {"{\"nunber\":1}", "f.json: /nunber:", "unknown key; did you mean \"number\"?"},
    {"{\"one\":{\"levels\":1}}", "f.json: /one/levels:", "did you mean \"level\"?"},
    {"{\"many\":[{\"lvel\":1}]}", "f.json: /many/0/lvel:", "did you mean \"level\"?"},
    {"{\"zzzzzz\":1}", "f.json: /zzzzzz:", "unknown key"},
    {"{\"text\":\"${UNIT_UNSET}\"}", "f.json: /text:", "UNIT_UNSET is not set"},
    {"{\"words\":[\"a\",\"${UNIT_UNSET}\"]}", "f.json: /words:", "UNIT_UNSET is not set"},
    {"{\"pairs\":{\"a\":\"${UNIT_UNSET}\"}}", "f.json: /pairs:", "UNIT_UNSET is not set"},
    {"{\"text\":\"${UNIT\"}", "f.json: /text:", "\"${\" without \"}\""},
};

static void an_invalid_option_is_reported_with_its_file_and_path(void **state)
{
    (void)state;
    unsetenv("UNIT_UNSET");
    for (size_t i = 0; i < COUNT(wrongs); i++) {
        struct sample s;
        struct err err;
        bool ok = parse(wrongs[i].text, &s, &err);
        option_release(&sample_table, &s);
        assert_row(!ok, wrongs[i].text);
        assert_int_equal(err.code, ERR_CONFIG);
        assert_int_equal(strncmp(err.detail, wrongs[i].path, strlen(wrongs[i].path)), 0);
        assert_contains(err.detail, wrongs[i].says);
    }
}

static void an_unknown_key_unlike_all_others_gets_no_suggestion(void **state)
{
    (void)state;
    struct sample s;
    struct err err;
    assert_false(parse("{\"zzzzzz\":1}", &s, &err));
    assert_null(strstr(err.detail, "did you mean"));
    option_release(&sample_table, &s);
}

// ---- units, variables and names -------------------------------------------------------------

static void durations_and_sizes_are_read_with_their_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } durations[] =
        {
            {"500ms", true, 500},   {"15s", true, 15000},    {"2m", true, 120000}, {"1h", true, 3600000},
            {"1d", true, 86400000}, {"1.5s", true, 1500},    {"0s", true, 0},      {"2 s", true, 2000},
            {"3S", true, 3000},     {"", false, 0},          {"s", false, 0},      {"5", false, 0},
            {"-1s", false, 0},      {"5 seconds", false, 0}, {"5sx", false, 0},    {"nan ms", false, 0},
            {"inf s", false, 0},    {"1e16ms", false, 0},    {"1e15d", false, 0},
        },
      sizes[] = {
          {"4096", true, 4096},    {"1B", true, 1},          {"64KiB", true, 65536},  {"4MiB", true, 4 << 20},
          {"1GiB", true, 1 << 30}, {"1KB", true, 1000},      {"2MB", true, 2000000},  {"1GB", true, 1000000000},
          {"1.5KiB", true, 1536},  {"1 MiB", true, 1 << 20}, {"8mib", true, 8 << 20}, {"0", true, 0},
          {"", false, 0},          {"KiB", false, 0},        {"-1", false, 0},        {"1TB", false, 0},
          {"1KiBx", false, 0},     {"nan", false, 0},        {"inf", false, 0},       {"1e15GiB", false, 0},
      };
    for (size_t i = 0; i < COUNT(durations); i++) {
        int64_t ms = -1;
        assert_row(option_duration(durations[i].text, &ms) == durations[i].ok, durations[i].text);
        assert_row(!durations[i].ok || ms == durations[i].value, durations[i].text);
    }
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int64_t bytes = -1;
        assert_row(option_size(sizes[i].text, &bytes) == sizes[i].ok, sizes[i].text);
        assert_row(!sizes[i].ok || bytes == sizes[i].value, sizes[i].text);
    }
}

static void variables_of_the_environment_are_expanded(void **state)
{
    (void)state;
    static const struct {
        const char *text, *value;
    } rows[] = {
        {"", ""},
        {"plain $HOME {x} $", "plain $HOME {x} $"},
        {"${UNIT_SET}", "value"},
        {"<${UNIT_SET}|${UNIT_SET}>", "<value|value>"},
        {"${UNIT_SET:-other}", "value"},
        {"${UNIT_UNSET:-other}", "other"},
        {"${UNIT_UNSET:-}", ""},
        {"${UNIT_UNSET:-a:-b}", "a:-b"},
        {"${UNIT_EMPTY:-other}", "other"},
        {"${UNIT_NESTED}", "${UNIT_SET}"},
        {"$${UNIT_SET}", "$value"},
        {"${UNIT_UNSET}", NULL},
        {"${UNIT_EMPTY}", NULL},
        {"a${UNIT_SET}${", NULL},
        {"${UNIT_SET", NULL},
    };
    setenv("UNIT_SET", "value", 1);
    setenv("UNIT_EMPTY", "", 1);
    setenv("UNIT_NESTED", "${UNIT_SET}", 1);
    unsetenv("UNIT_UNSET");
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        char *value = option_expand(rows[i].text, &(struct option_place){.file = "f.json", .path = "/a/b"}, &err);
        assert_row((value != NULL) == (rows[i].value != NULL), rows[i].text);
        if (value)
            assert_string_equal(value, rows[i].value);
        else
            assert_int_equal(strncmp(err.detail, "f.json: /a/b: ", 14), 0);
        free(value);
    }
}

static void the_nearest_known_name_is_suggested(void **state)
{
    (void)state;
    static const char *const names[] = {"timeout", "command", "url", NULL};
    static const struct {
        const char *word, *nearest;
    } rows[] = {{"timout", "timeout"},
                {"Command", "command"},
                {"ur", "url"},
                {"uri", "url"},
                {"xyzxyz", NULL},
                {"", NULL},
                {"x", NULL}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *got = option_nearest(rows[i].word, names);
        assert_row(rows[i].nearest ? got && strcmp(got, rows[i].nearest) == 0 : !got, rows[i].word);
    }
    char longest[200];
    memset(longest, 'u', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_true(option_nearest(longest, names) == NULL || strlen(longest) > 64);
}

// ---- showing --------------------------------------------------------------------------------

static void secret_options_are_never_shown(void **state)
{
    (void)state;
    struct sample s;
    struct err err;
    assert_true(parse("{\"password\":\"hunter2\",\"hidden\":{\"TOKEN\":\"hunter2\"},\"text\":\"open\",\"maybe\":false,"
                      "\"wait\":\"1500ms\"}",
                      &s, &err));
    json_t *shown = option_show(&sample_table, &s);
    char *text = json_dumps(shown, JSON_COMPACT);
    assert_null(strstr(text, "hunter2"));
    assert_contains(text, "\"password\":\"***\"");
    assert_contains(text, "\"hidden\":{\"TOKEN\":\"***\"}");
    assert_contains(text, "\"text\":\"open\"");
    assert_contains(text, "\"maybe\":false");
    assert_contains(text, "\"wait\":\"1500ms\"");
    free(text);
    json_decref(shown);
    option_release(&sample_table, &s);
}

static void shown_options_parse_to_the_same_values(void **state)
{
    (void)state;
    struct sample first, second;
    struct err err;
    assert_true(parse("{\"flag\":false,\"size\":77,\"wait\":\"1m\",\"mode\":\"off\",\"words\":[\"w\"],\"pairs\":{\"a\":"
                      "\"b\"},\"many\":[{\"level\":2}],\"named\":{\"n\":{}}}",
                      &first, &err));
    json_t *once = option_show(&sample_table, &first);
    second = (struct sample){0};
    assert_true(option_parse(&sample_table, once, &second, &place, &err));
    json_t *twice = option_show(&sample_table, &second);
    assert_true(json_equal(once, twice));
    json_decref(once);
    json_decref(twice);
    option_release(&sample_table, &first);
    option_release(&sample_table, &second);
}

// Objects of which no two are equal, each beside one that is easily taken for it.
static const char *const different[] = {
    "{}",
    "{\"flag\":false}",
    "{\"number\":6}",
    "{\"size\":2048}",
    "{\"wait\":3}",
    "{\"rest\":\"off\"}",
    "{\"text\":\"\"}",
    "{\"text\":\"a\"}",
    "{\"maybe\":\"a\"}",
    "{\"text\":\"1:a,\"}",
    "{\"mode\":\"fast\"}",
    "{\"words\":[]}",
    "{\"words\":[\"a\",\"b\"]}",
    "{\"words\":[\"ab\"]}",
    "{\"words\":[\"a,1:b\"]}",
    "{\"pairs\":{\"A\":\"b\"}}",
    "{\"pairs\":{\"Ab\":\"\"}}",
    "{\"one\":{\"level\":4}}",
    "{\"many\":[]}",
    "{\"many\":[{}]}",
    "{\"many\":[{},{}]}",
    "{\"many\":[{\"level\":4}]}",
    "{\"named\":{\"x\":{}}}",
    "{\"named\":{\"y\":{}}}",
    "{\"password\":\"one\"}",
    "{\"password\":\"two\"}",
    "{\"hidden\":{\"A\":\"one\"}}",
    "{\"hidden\":{\"A\":\"two\"}}",
};

static void put_bytes(const char *text, struct buf *out, struct sample *sample)
{
    struct err err;
    assert_row(parse(text, sample, &err), err.detail);
    option_compare_put(&sample_table, sample, out);
}

static void the_bytes_of_two_objects_are_equal_if_the_objects_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(different); i++)
        for (size_t k = 0; k < COUNT(different); k++) {
            struct sample one, other;
            struct buf bytes = {0}, others = {0};
            put_bytes(different[i], &bytes, &one);
            put_bytes(different[k], &others, &other);
            bool equal = option_compare_equal(&sample_table, &one, &other);
            assert_row(equal == (i == k), different[i]);
            assert_row(span_equal(buf_span(&bytes), buf_span(&others)) == equal, different[i]);
            buf_release(&bytes);
            buf_release(&others);
            option_release(&sample_table, &one);
            option_release(&sample_table, &other);
        }
}

static void the_schema_names_every_option(void **state)
{
    (void)state;
    json_t *schema = option_schema(&sample_table), *properties = json_object_get(schema, "properties");
    assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
    for (const struct option *row = sample_rows; row->name; row++)
        assert_row(json_object_get(properties, row->name) != NULL, row->name);
    json_decref(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_options_have_their_defaults),
        cmocka_unit_test(every_type_of_option_is_read),
        cmocka_unit_test(an_invalid_option_is_reported_with_its_file_and_path),
        cmocka_unit_test(an_unknown_key_unlike_all_others_gets_no_suggestion),
        cmocka_unit_test(durations_and_sizes_are_read_with_their_units),
        cmocka_unit_test(variables_of_the_environment_are_expanded),
        cmocka_unit_test(the_nearest_known_name_is_suggested),
        cmocka_unit_test(secret_options_are_never_shown),
        cmocka_unit_test(shown_options_parse_to_the_same_values),
        cmocka_unit_test(the_bytes_of_two_objects_are_equal_if_the_objects_are),
        cmocka_unit_test(the_schema_names_every_option),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
