// Tests the JSON scanner: grammar, UTF-8, depth, duplicates, walking, and agreement with jansson.
#include "base/json.h"
#include "scan.h"
#include "unit.h"

#define LETTERS                                      \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST" \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST" \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST"  // 138 of them

// ---- grammar --------------------------------------------------------------------------------

// Whether jansson agrees: it refuses numbers that it cannot represent, zero bytes in keys, and lone surrogates, and it does not
// see a zero byte right after a number.
enum jansson { SAME, REFUSES, TAKES };

static const struct text_row {
    const char *text;
    size_t len;
    bool ok;
    enum jansson jansson;
} texts[] = {
    // clang-format off
    {LIT("null"), true, SAME},                  {LIT("true"), true, SAME},
    {LIT("false"), true, SAME},                 {LIT(" \t\r\n1 \t\r\n"), true, SAME},
    {LIT("{}"), true, SAME},                    {LIT("[]"), true, SAME},
    {LIT("{ }"), true, SAME},                   {LIT("[ ]"), true, SAME},
    {LIT("\"\""), true, SAME},                  {LIT("[1,2 , 3]"), true, SAME},
    {LIT("{\"a\":1,\"b\":[{}]}"), true, SAME},  {LIT("{\"a\" : 1 , \"b\" : null}"), true, SAME},
    {LIT(""), false, SAME},                     {LIT(" "), false, SAME},
    {LIT("nul"), false, SAME},                  {LIT("nulL"), false, SAME},
    {LIT("True"), false, SAME},                 {LIT("falsee"), false, SAME},
    {LIT("1 2"), false, SAME},                  {LIT("{}x"), false, SAME},
    {LIT("[1,]"), false, SAME},                 {LIT("[,1]"), false, SAME},
    {LIT("[1 2]"), false, SAME},                {LIT("["), false, SAME},
    {LIT("]"), false, SAME},                    {LIT("[1"), false, SAME},
    {LIT("[1,"), false, SAME},                  {LIT("[}"), false, SAME},
    {LIT("{"), false, SAME},                    {LIT("{\"a\"}"), false, SAME},
    {LIT("{\"a\":}"), false, SAME},             {LIT("{\"a\":1,}"), false, SAME},
    {LIT("{,}"), false, SAME},                  {LIT("{a:1}"), false, SAME},
    {LIT("{1:1}"), false, SAME},                {LIT("{\"a\" 1}"), false, SAME},
    {LIT("{\"a\":1 \"b\":2}"), false, SAME},    {LIT("{\"a\":1"), false, SAME},
    {LIT("{\"a\":"), false, SAME},              {LIT("{\"a\""), false, SAME},
    {LIT("{\"a"), false, SAME},                 {LIT("'a'"), false, SAME},
    {LIT("/**/1"), false, SAME},                {LIT("1//"), false, SAME},
    {LIT("\xEF\xBB\xBF{}"), false, SAME},       {LIT("\f1"), false, SAME},
    {LIT("1\0"), false, TAKES},                  {LIT("\0"), false, SAME},
    {LIT("NaN"), false, SAME},                  {LIT("Infinity"), false, SAME},
    // numbers
    {LIT("0"), true, SAME},                     {LIT("-0"), true, SAME},
    {LIT("10"), true, SAME},                    {LIT("-12.5e+3"), true, SAME},
    {LIT("1E5"), true, SAME},                   {LIT("1e-5"), true, SAME},
    {LIT("0.0"), true, SAME},                   {LIT("0e0"), true, SAME},
    {LIT("1e-999"), true, SAME},                {LIT("9223372036854775807"), true, SAME},
    {LIT("1e999"), true, REFUSES},              {LIT("123456789012345678901234567890"), true, REFUSES},
    {LIT("01"), false, SAME},                   {LIT("-01"), false, SAME},
    {LIT("+1"), false, SAME},                   {LIT("-"), false, SAME},
    {LIT(".5"), false, SAME},                   {LIT("5."), false, SAME},
    {LIT("1e"), false, SAME},                   {LIT("1e+"), false, SAME},
    {LIT("1.e5"), false, SAME},                 {LIT("0x10"), false, SAME},
    {LIT("--1"), false, SAME},                  {LIT("1.2.3"), false, SAME},
    // strings and escapes
    {LIT("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), true, SAME},
    {LIT("\"\\u0041\\u00e9\\u20AC\""), true, SAME},
    {LIT("\"\\u0000\""), true, SAME},           {LIT("{\"\\u0000\":1}"), true, REFUSES},
    {LIT("\"\\ud83d\\ude00\""), true, SAME},    {LIT("\"\\uD83D\\uDE00\""), true, SAME},
    {LIT("\"\x7F\""), true, SAME},              {LIT("\""), false, SAME},
    {LIT("\"a"), false, SAME},                  {LIT("\"\\\""), false, SAME},
    {LIT("\"\\"), false, SAME},                 {LIT("\"\\x41\""), false, SAME},
    {LIT("\"\\'\""), false, SAME},              {LIT("\"\\\0\""), false, SAME},
    {LIT("\"\\u12\""), false, SAME},            {LIT("\"\\u12G4\""), false, SAME},
    {LIT("\"\\u"), false, SAME},                {LIT("\"\\U0041\""), false, SAME},
    {LIT("\"\\ud800\""), true, REFUSES},        {LIT("\"\\ud800x\""), true, REFUSES},
    {LIT("\"\\ud800\\n\""), true, REFUSES},     {LIT("\"\\ud800\\u0041\""), true, REFUSES},
    {LIT("\"\\ud800\\ud800\""), true, REFUSES}, {LIT("\"\\udc00\""), true, REFUSES},
    {LIT("\"\\uDFFF\\uD800\""), true, REFUSES}, {LIT("{\"\\udbff\":1}"), true, REFUSES},
    {LIT("\"\\ud83d\\ude0"), false, SAME},      {LIT("\"\\ud83d\\ude0\""), false, SAME},
    {LIT("\"\\ud83\""), false, SAME},            {LIT("\"\\ud83d\\u\""), false, SAME},
    {LIT("\"a\nb\""), false, SAME},             {LIT("\"a\tb\""), false, SAME},
    {LIT("\"\0\""), false, SAME},               {LIT("\"\x1F\""), false, SAME},
    // UTF-8: the first and last character of each length, then invalid sequences
    {LIT("\"\xC2\x80\xDF\xBF\""), true, SAME},
    {LIT("\"\xE0\xA0\x80\xEF\xBF\xBF\""), true, SAME},
    {LIT("\"\xED\x9F\xBF\xEE\x80\x80\""), true, SAME},
    {LIT("\"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\""), true, SAME},
    {LIT("\"\x80\""), false, SAME},             {LIT("\"\xBF\""), false, SAME},
    {LIT("\"\xC0\x80\""), false, SAME},         {LIT("\"\xC1\xBF\""), false, SAME},
    {LIT("\"\xC2\""), false, SAME},             {LIT("\"\xC2"), false, SAME},
    {LIT("\"\xC3\x28\""), false, SAME},         {LIT("\"\xE0\x80\x80\""), false, SAME},
    {LIT("\"\xE0\x9F\xBF\""), false, SAME},     {LIT("\"\xE2\x82\""), false, SAME},
    {LIT("\"\xE2\x28\xA1\""), false, SAME},     {LIT("\"\xED\xA0\x80\""), false, SAME},
    {LIT("\"\xED\xBF\xBF\""), false, SAME},     {LIT("\"\xF0\x80\x80\x80\""), false, SAME},
    {LIT("\"\xF0\x8F\xBF\xBF\""), false, SAME}, {LIT("\"\xF0\x9F\x98\""), false, SAME},
    {LIT("\"\xF0\x9F\x98"), false, SAME},       {LIT("\"\xF4\x90\x80\x80\""), false, SAME},
    {LIT("\"\xF5\x80\x80\x80\""), false, SAME}, {LIT("\"\xF8\x88\x80\x80\x80\""), false, SAME},
    {LIT("\"\xFE\""), false, SAME},             {LIT("\"\xFF\""), false, SAME},
    {LIT("\xC3\xA9"), false, SAME},
    // duplicates (refused here: the tests scan strictly)
    {LIT("{\"a\":1,\"a\":2}"), false, SAME},    {LIT("{\"a\":1,\"\\u0061\":2}"), false, SAME},
    {LIT("{\"\\u0061\":1,\"\\u0061\":2}"), false, SAME},
    {LIT("{\"a\\/b\":1,\"a/b\":2}"), false, SAME},
    {LIT("{\"\":1,\"\":2}"), false, SAME},      {LIT("[{\"x\":{\"a\":1,\"a\":1}}]"), false, SAME},
    {LIT("{\"a\":1,\"A\":2}"), true, SAME},     {LIT("{\"a\":{\"a\":{\"a\":1}}}"), true, SAME},
    {LIT("[{\"a\":1},{\"a\":1}]"), true, SAME}, {LIT("{\"\":1,\"a\":2}"), true, SAME},
    {LIT("{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}"), false, SAME},
    {LIT("{\"a\":1,\"a\\u0000\":2}"), true, REFUSES},
    {LIT("{\"\\ud83d\":1,\"\\uD83D\":2}"), false, SAME}, {LIT("{\"\\ud83d\":1,\"\\ud83e\":2}"), true, REFUSES},
    // clang-format on
};

static bool accepts(struct span text, bool strict)
{
    struct span value;
    struct err err = {0};
    bool ok = scan_document(text, strict, &value, &err);
    assert_int_equal(err.code, ok ? ERR_NONE : ERR_PARSE);
    return ok;
}

// Scans a copy of exactly that length, so that the sanitizer detects a read beyond its end.
static bool accepts_copy(struct span text, bool strict)
{
    char *copy = malloc(text.len ? text.len : 1);
    if (text.len)
        memcpy(copy, text.at, text.len);
    bool ok = accepts(span_make(copy, text.len), strict);
    free(copy);
    return ok;
}

static void the_scanner_accepts_exactly_the_json_grammar(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_row(accepts_copy(span_make(texts[i].text, texts[i].len), true) == texts[i].ok, texts[i].text);
}

static void the_scanner_agrees_with_jansson(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        const size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
        json_t *tree = json_loadb(texts[i].text, texts[i].len, flags, NULL);
        bool expected = texts[i].jansson == SAME ? texts[i].ok : texts[i].jansson == TAKES;
        assert_row((tree != NULL) == expected, texts[i].text);
        json_decref(tree);
    }
}

static void every_truncation_of_a_document_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"k\":[true,null,-1.5e3,\"\\u00e9\xC3\xA9\\ud83d\\ude00\",{\"n\":{}}]}";
    for (size_t len = 0; len < sizeof text - 1; len++)
        assert_false(accepts_copy(span_make(text, len), true));
    assert_true(accepts_copy(SPAN(text), true));
}

static void an_empty_span_without_memory_is_not_a_document(void **state)
{
    (void)state;
    assert_false(accepts((struct span){NULL, 0}, true));
}

static void a_scan_error_gives_the_offset_of_the_failure(void **state)
{
    (void)state;
    struct span value;
    struct err err = {0};
    assert_false(scan_document(SPAN("{\"a\":tru}"), false, &value, &err));
    assert_contains(err.detail, "byte 5:");
    assert_false(scan_document(SPAN("{\"a\":1} x"), false, &value, &err));
    assert_contains(err.detail, "byte 8: unexpected text after");
    assert_false(scan_document(SPAN("{\"a\":1,\"a\":1}"), true, &value, &err));
    assert_contains(err.detail, "duplicate key");
}

static void scanned_values_are_trimmed_and_numbers_stay_exact(void **state)
{
    (void)state;
    static const char *const values[] = {
        "1.0", "1.00", "-0", "1E+2", "123456789012345678901234567890", "1e999", "\"\\u0061\"", "[ 1 ]", "{\"a\" : 1}",
    };
    for (size_t i = 0; i < COUNT(values); i++) {
        struct buf text = {0};
        struct span value;
        struct err err;
        buf_printf(&text, " \n%s\t ", values[i]);
        assert_true(scan_document(buf_span(&text), true, &value, &err));
        assert_span(value, span_of(values[i]), values[i]);
        buf_release(&text);
    }
}

// ---- depth and duplicates -------------------------------------------------------------------

static struct buf nested(size_t depth, const char *open, const char *close)
{
    struct buf text = {0};
    for (size_t i = 0; i < depth; i++)
        buf_put_text(&text, open);
    for (size_t i = 0; i < depth; i++)
        buf_put_text(&text, close);
    return text;
}

static void the_depth_of_a_document_is_bounded(void **state)
{
    (void)state;
    static const struct {
        size_t depth;
        bool ok;
    } rows[] = {{1, true}, {SCAN_DEPTH_MAX, true}, {SCAN_DEPTH_MAX + 1, false}, {100000, false}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf arrays = nested(rows[i].depth, "[", "]");
        struct buf objects = {0};
        for (size_t k = 1; k < rows[i].depth; k++)
            buf_put_text(&objects, "{\"a\":");
        buf_put_text(&objects, "{}");
        for (size_t k = 1; k < rows[i].depth; k++)
            buf_put_text(&objects, "}");
        assert_int_equal(accepts(buf_span(&arrays), true), rows[i].ok);
        assert_int_equal(accepts(buf_span(&objects), true), rows[i].ok);
        buf_release(&arrays);
        buf_release(&objects);
    }
}

static void the_depth_of_a_document_is_reported(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned depth;
    } rows[] = {
        {"1", 0},
        {"\"[{\"", 0},
        {"[]", 1},
        {"{\"a\":1}", 1},
        {"[{},[]]", 2},
        {"[{\"a\":[]},[]]", 3},
        {"{\"[\":\"\\\"[[[\",\"a\":{}}", 2},
        {"[\"\\\\\",[1]]", 2},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(scan_depth(span_of(rows[i].text)) == rows[i].depth, rows[i].text);
}

static struct buf object_of(size_t keys, const char *last)
{
    struct buf text = {0};
    buf_put_char(&text, '{');
    for (size_t i = 0; i < keys; i++)
        buf_printf(&text, "\"key%zu\":%zu,", i, i);
    buf_printf(&text, "%s:0}", last);
    return text;
}

static void duplicate_keys_are_found_among_any_number_of_keys(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 15, 16, 17, 63, 64, 65, 1000};
    static const struct {
        const char *last;
        bool unique;
    } rows[] = {
        {"\"other\"", true}, {"\"key0\"", false}, {"\"\\u006bey0\"", false}, {"\"k\\u0065y\\u0030\"", false},
        {"\"key\"", true},   {"\"\"", true},      {"\"ke\\u0079\"", true},
    };
    for (size_t i = 0; i < COUNT(counts); i++)
        for (size_t k = 0; k < COUNT(rows); k++) {
            struct buf text = object_of(counts[i], rows[k].last);
            assert_row(accepts(buf_span(&text), true) == rows[k].unique, rows[k].last);
            assert_true(accepts(buf_span(&text), false));
            buf_release(&text);
        }
}

// ---- long runs ------------------------------------------------------------------------------

static const struct {
    const char *bytes;
    size_t len;
    bool ok;
} specials[] = {
    {LIT("\\n"), true},      {LIT("\\\""), true}, {LIT("\\\\"), true},  {LIT("\\u00e9"), true},
    {LIT("\xC3\xA9"), true}, {LIT("\x7F"), true}, {LIT(" "), true},     {LIT("\xE2\x82\xAC"), true},
    {LIT("\n"), false},      {LIT("\0"), false},  {LIT("\x1F"), false}, {LIT("\x80"), false},
    {LIT("\xFF"), false},    {LIT("\\x"), false}, {LIT("\xC3"), false},
};

static void a_special_byte_is_seen_at_every_offset_of_a_long_run(void **state)
{
    (void)state;
    for (size_t length = 0; length <= 50; length++)
        for (size_t at = 0; at <= length; at++)
            for (size_t i = 0; i < COUNT(specials); i++) {
                struct buf text = {0};
                buf_put_char(&text, '"');
                for (size_t k = 0; k < at; k++)
                    buf_put_char(&text, (char)('a' + k % 26));
                buf_put(&text, specials[i].bytes, specials[i].len);
                for (size_t k = at; k < length; k++)
                    buf_put_char(&text, '~');
                buf_put_char(&text, '"');
                assert_int_equal(accepts_copy(buf_span(&text), true), specials[i].ok);
                text.len--;
                assert_false(accepts_copy(buf_span(&text), true));
                buf_release(&text);
            }
}

// ---- walking --------------------------------------------------------------------------------

static void members_and_elements_are_walked_in_order(void **state)
{
    (void)state;
    static const char object[] = "{ \"a\" : 1 ,\"b\":\"x,\\\"]}\\\\\", \"c\":[1,{\"d\":[]}] ,\"e\" : {\"f\":null}\n}";
    static const char *const want[][2] = {
        {"\"a\"", "1"}, {"\"b\"", "\"x,\\\"]}\\\\\""}, {"\"c\"", "[1,{\"d\":[]}]"}, {"\"e\"", "{\"f\":null}"}};
    struct scan_walk walk = scan_walk(SPAN(object));
    struct span key, value;
    size_t n = 0;
    for (; scan_member(&walk, &key, &value); n++) {
        assert_true(n < COUNT(want));
        assert_span(key, span_of(want[n][0]), "key");
        assert_span(value, span_of(want[n][1]), want[n][0]);
    }
    assert_int_equal(n, COUNT(want));

    static const char *const elements[] = {"1", "-2.5e3", "true", "\"]\"", "[ ]", "{ }", "null"};
    walk = scan_walk(SPAN("[1, -2.5e3 ,true,\"]\",[ ],{ } , null ]"));
    for (n = 0; scan_element(&walk, &value); n++)
        assert_span(value, span_of(elements[n]), elements[n]);
    assert_int_equal(n, COUNT(elements));
}

static void an_empty_container_has_no_members_to_walk(void **state)
{
    (void)state;
    static const char *const empty[] = {"{}", "[]", "{ }", "[\n]", ""};
    struct span key, value;
    for (size_t i = 0; i < COUNT(empty); i++) {
        struct scan_walk walk = scan_walk(span_of(empty[i]));
        assert_false(scan_member(&walk, &key, &value));
        walk = scan_walk(span_of(empty[i]));
        assert_false(scan_element(&walk, &value));
    }
}

static void the_first_member_with_a_name_is_found(void **state)
{
    (void)state;
    static const char object[] =
        "{\"a\":{\"b\":9},\"\\u0062\":2,\"b\":3,\"a\\/c\":4,\"\":5,\"\xF0\x9F\x98\x80\":6,\"z\\u0000\":7}";
    static const struct {
        const char *key, *value;
    } rows[] = {{"a", "{\"b\":9}"}, {"b", "2"},  {"a/c", "4"}, {"", "5"},  {"\xF0\x9F\x98\x80", "6"},
                {"c", NULL},        {"B", NULL}, {"ab", NULL}, {"z", NULL}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct span value;
        bool found = scan_find(SPAN(object), rows[i].key, &value);
        assert_row(found == (rows[i].value != NULL), rows[i].key);
        if (found)
            assert_span(value, span_of(rows[i].value), rows[i].key);
    }
    struct span value;
    assert_false(scan_find(SPAN("[\"a\",1]"), "a", &value));
    assert_false(scan_find(SPAN("\"a\""), "a", &value));
    assert_false(scan_find(SPAN("1"), "a", &value));
}

static void the_kinds_of_json_values_are_distinguished(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool string, object, array, number;
    } rows[] = {
        {"\"\"", true, false, false, false}, {"{}", false, true, false, false}, {"[]", false, false, true, false},
        {"-1", false, false, false, true},   {"0", false, false, false, true},  {"null", false, false, false, false},
        {"", false, false, false, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct span v = span_of(rows[i].text);
        assert_row(scan_is_string(v) == rows[i].string && scan_is_object(v) == rows[i].object &&
                       scan_is_array(v) == rows[i].array && scan_is_number(v) == rows[i].number,
                   rows[i].text);
    }
}

// ---- strings --------------------------------------------------------------------------------

static void every_escape_of_a_string_is_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *raw;
        const char *text;
        size_t len;
    } rows[] = {
        {"\"\"", LIT("")},
        {"\"plain\"", LIT("plain")},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", LIT("\"\\/\b\f\n\r\t")},
        {"\"\\u0000x\"", LIT("\0x")},
        {"\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"", LIT("\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF")},
        {"\"\\ud800\\udc00\\uDBFF\\uDFFF\"", LIT("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF")},
        {"\"a\\\\u0041\"", LIT("a\\u0041")},
        {"\"\\uD83Dx\"", LIT("\xED\xA0\xBDx")},
        {"\"\\ud83d\\ud83d\\ude00\\ude00\"", LIT("\xED\xA0\xBD\xF0\x9F\x98\x80\xED\xB8\x80")},
        {"\"\\ud83d\\\\ude00\"", LIT("\xED\xA0\xBD\\ude00")},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf out = {0};
        buf_put_text(&out, "<");
        scan_decode(span_of(rows[i].raw), &out);
        assert_span(span_after(buf_span(&out), 1), span_make(rows[i].text, rows[i].len), rows[i].raw);
        buf_release(&out);
    }
}

static void an_encoded_string_decodes_to_the_same_bytes(void **state)
{
    (void)state;
    char every[0x80 + 14];
    for (int c = 0; c < 0x80; c++)
        every[c] = (char)c;
    memcpy(every + 0x80, "\xC3\xA9\xF0\x9F\x98\x80\xC2\x80\xED\x9F\xBF\xEE\x80\x80", 14);
    for (size_t from = 0; from <= 0x80; from += 16) {
        struct buf raw = {0}, back = {0};
        struct span text = span_make(every + from, sizeof every - from);
        scan_encode(text, &raw);
        assert_true(accepts(buf_span(&raw), true));
        scan_decode(buf_span(&raw), &back);
        assert_span(buf_span(&back), text, "round trip");
        buf_clear(&back);
        scan_encode_lossy(text, &back);
        if (from > 0)  // without the zero byte
            assert_span(buf_span(&back), buf_span(&raw), "lossy is the same for UTF-8");
        buf_release(&raw);
        buf_release(&back);
    }
    struct buf raw = {0};
    scan_encode((struct span){NULL, 0}, &raw);
    assert_span(buf_span(&raw), SPAN("\"\""), "nothing");
    buf_release(&raw);
}

static void lossy_encoding_turns_any_bytes_into_valid_json(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *raw;
    } rows[] = {
        {LIT("a\xFFz"), "\"a\xEF\xBF\xBDz\""},
        {LIT("\xC3"), "\"\xEF\xBF\xBD\""},
        {LIT("\xC0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {LIT("\xE2\x82\xAC\x80"), "\"\xE2\x82\xAC\xEF\xBF\xBD\""},
        {LIT("\n\x01"), "\"\\n\\u0001\""},
        {LIT("a\0z"), "\"a\xEF\xBF\xBDz\""},
        {LIT("a\xED\xA0\xBDz"), "\"a\xEF\xBF\xBDz\""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf out = {0};
        scan_encode_lossy(span_make(rows[i].text, rows[i].len), &out);
        assert_span(buf_span(&out), span_of(rows[i].raw), rows[i].raw);
        assert_true(accepts(buf_span(&out), true));
        buf_release(&out);
    }
}

static void what_terminals_act_on_is_shown_as_an_escape(void **state)
{
    (void)state;
    struct buf out = {0};
    scan_put_shown(SPAN("\"a\xC2\x9B"
                        "31m\x7F\xC2\xA0\xC3\x80\xE2\x82\xAC\\u001b\xC2\""),
                   &out);
    assert_span(buf_span(&out), SPAN("\"a\\u009b31m\\u007f\xC2\xA0\xC3\x80\xE2\x82\xAC\\u001b\xC2\""), "shown");
    buf_release(&out);
}

static void a_lone_surrogate_is_encoded_as_it_was(void **state)
{
    (void)state;
    static const char *const raw[] = {"\"\\ud83d\"", "\"a\\ud800b\\udfff\"", "\"\\udc00\\ud800\"",
                                      "\"\\udbff\xC3\xA9\""};
    for (size_t i = 0; i < COUNT(raw); i++) {
        struct buf text = {0}, again = {0};
        scan_decode(span_of(raw[i]), &text);
        assert_row(scan_has_half(buf_span(&text)) && !scan_is_utf8(buf_span(&text)), raw[i]);
        scan_encode(buf_span(&text), &again);
        assert_span(buf_span(&again), span_of(raw[i]), raw[i]);
        buf_clear(&again);
        scan_put_before(SPAN("\"\n"), span_of(raw[i]), &again);
        assert_span(span_after(buf_span(&again), 5), span_after(span_of(raw[i]), 1), raw[i]);
        assert_true(accepts(buf_span(&again), true));
        buf_release(&text);
        buf_release(&again);
    }
    assert_false(scan_has_half(SPAN("\xED\x9F\xBF\xEE\x80\x80\xED")));
    assert_false(scan_has_half((struct span){0}));
}

static void lone_surrogates_are_masked(void **state)
{
    (void)state;
    static const struct {
        const char *json, *masked;
    } rows[] = {
        {"{\"a\":\"\\ud83d\"}", "{\"a\":\"\\u0000\"}"},
        {"[\"\\ud83d\\ude00\"]", NULL},
        {"[\"\\\\ud83d\"]", NULL},
        {"[\"\\\\\\ud83d\"]", "[\"\\\\\\u0000\"]"},
        {"{\"\\uDE00\":\"\\ud83d\\ud83d\\ude00\\n\"}", "{\"\\u0000\":\"\\u0000\\ud83d\\ude00\\n\"}"},
        {"[\"\\u12\\ud83d", "[\"\\u12\\u0000"},
        {"\\", NULL},
        {"[\"\\ud8", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf out = {0};
        assert_row(scan_mask_halves(span_of(rows[i].json), &out) == (rows[i].masked != NULL), rows[i].json);
        assert_span(buf_span(&out), span_of(rows[i].masked ? rows[i].masked : ""), rows[i].json);
        buf_release(&out);
    }
    struct err err;
    json_t *tree = json_parse_arguments(SPAN("{\"a\":\"x\\ud83d\",\"b\":1}"), "arguments", &err);
    assert_int_equal(json_string_length(json_object_get(tree, "a")), 2);
    json_decref(tree);
    assert_null(json_parse_arguments(SPAN("{\"a\\ud83d\":1}"), "arguments", &err));
}

static void valid_and_invalid_utf8_are_distinguished(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        bool yes;
    } rows[] = {
        {LIT(""), true},
        {LIT("ana"), true},
        {LIT("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80"), true},
        {LIT("a\0b"), true},
        {LIT("\xEF\xBF\xBD"), true},
        {LIT("\xFF"), false},
        {LIT("a\x80"), false},
        {LIT("\xC3"), false},
        {LIT("\xC0\xAF"), false},
        {LIT("\xE0\x80\xAF"), false},
        {LIT("\xED\xA0\x80"), false},
        {LIT("\xF4\x90\x80\x80"), false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(scan_is_utf8(span_make(rows[i].text, rows[i].len)) == rows[i].yes, rows[i].text);
}

static void repaired_text_is_cut_between_characters(void **state)
{
    (void)state;
    static const struct {
        const char *text, *mended;
    } rows[] = {
        {"", ""},
        {"a\xC3\xA9\xF0\x9F\x98\x80", "a\xC3\xA9\xF0\x9F\x98\x80"},
        {"a\xF0\x9F\x98", "a???"},
        {"\xC3\"", "?\""},
        {"x\xED\xA0\xBDy\xED\xA0", "x\xEF\xBF\xBDy??"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", rows[i].text);
        scan_mend(text, strlen(text));
        assert_string_equal(text, rows[i].mended);
    }
    static const size_t cuts[] = {0, 1, 1, 3, 3, 3, 3, 7, 8, 8};
    for (size_t max = 0; max < COUNT(cuts); max++)
        assert_int_equal(scan_cut(SPAN("a\xC3\xA9\xF0\x9F\x98\x80z"), max), cuts[max]);
    struct err err;
    (void)err_set(&err, ERR_PARSE, "%.2s|", "a\xC3\xA9");
    assert_string_equal(err.detail, "a?|");
}

// The scanner skips plain bytes in blocks, so each part is tried at every offset from a block.
static void a_long_string_is_judged_alike_wherever_its_odd_part_is(void **state)
{
    (void)state;
    static const struct {
        const char *part;
        bool good;
    } rows[] = {{"\\n", true},      {"\\\"", true},  {"\\\\", true},     {"\\\\\\\"", true}, {"\\u0041", true},
                {"\xC3\xA9", true}, {"\x7F", true},  {"\\x", false},     {"\\u00g1", false}, {"\n", false},
                {"\x01", false},    {"\xC3", false}, {"\\\\\\x", false}, {"\xFF", false},    {"\\\\\\\\", true}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        for (size_t before = 0; before < 140; before++)
            for (size_t after = 0; after < 140; after += 69) {
                char text[400];
                size_t len = (size_t)snprintf(text, sizeof text, "\"%.*s%s%.*s\"", (int)before, LETTERS, rows[row].part,
                                              (int)after, LETTERS);
                struct scan scan;
                struct span raw;
                char *exact = malloc(len);  // so that the sanitizer detects a read beyond the end
                memcpy(exact, text, len);
                scan_start(&scan, span_make(exact, len), true);
                assert_int_equal(scan_string(&scan, &raw), rows[row].good);
                if (rows[row].good)
                    assert_int_equal(raw.len, len);
                free(exact);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_string_is_judged_alike_wherever_its_odd_part_is),
        cmocka_unit_test(valid_and_invalid_utf8_are_distinguished),
        cmocka_unit_test(the_scanner_accepts_exactly_the_json_grammar),
        cmocka_unit_test(the_scanner_agrees_with_jansson),
        cmocka_unit_test(every_truncation_of_a_document_is_refused),
        cmocka_unit_test(an_empty_span_without_memory_is_not_a_document),
        cmocka_unit_test(a_scan_error_gives_the_offset_of_the_failure),
        cmocka_unit_test(scanned_values_are_trimmed_and_numbers_stay_exact),
        cmocka_unit_test(the_depth_of_a_document_is_bounded),
        cmocka_unit_test(the_depth_of_a_document_is_reported),
        cmocka_unit_test(duplicate_keys_are_found_among_any_number_of_keys),
        cmocka_unit_test(a_special_byte_is_seen_at_every_offset_of_a_long_run),
        cmocka_unit_test(members_and_elements_are_walked_in_order),
        cmocka_unit_test(an_empty_container_has_no_members_to_walk),
        cmocka_unit_test(the_first_member_with_a_name_is_found),
        cmocka_unit_test(the_kinds_of_json_values_are_distinguished),
        cmocka_unit_test(every_escape_of_a_string_is_decoded),
        cmocka_unit_test(an_encoded_string_decodes_to_the_same_bytes),
        cmocka_unit_test(what_terminals_act_on_is_shown_as_an_escape),
        cmocka_unit_test(lossy_encoding_turns_any_bytes_into_valid_json),
        cmocka_unit_test(a_lone_surrogate_is_encoded_as_it_was),
        cmocka_unit_test(lone_surrogates_are_masked),
        cmocka_unit_test(repaired_text_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
