// Tests the wrapped form of resource URIs and template matching.
#include "mcp/uri.h"
#include "unit.h"

static const struct {
    const char *uri, *wrapped;
} wraps[] = {
    {"file:///a/b", "postern://key/file:///a/b"},
    {"http://x/?q#f", "postern://key/http://x/?q#f"},
    {"ui://widget/page", "ui://key/widget/page"},
    {"ui://", "ui://key/"},
    {"ui:///x", "ui://key//x"},
    {"", "postern://key/"},
    {"/", "postern://key//"},
    {"postern://other/x", "postern://key/postern://other/x"},
    {"res://{id}/{+path}", "postern://key/res://{id}/{+path}"},
    {"UI://x", "postern://key/UI://x"},
};

static void a_wrapped_uri_unwraps_to_the_original(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(wraps); i++) {
        struct buf wrapped = {0}, original = {0};
        struct span key;
        uri_wrap(SPAN("key"), span_of(wraps[i].uri), &wrapped);
        assert_span(buf_span(&wrapped), span_of(wraps[i].wrapped), wraps[i].uri);
        buf_put_text(&original, "<");
        assert_row(uri_unwrap(buf_span(&wrapped), &key, &original), wraps[i].uri);
        assert_span(key, SPAN("key"), wraps[i].uri);
        assert_true(key.at >= wrapped.at && key.at + key.len <= wrapped.at + wrapped.len);
        assert_span(span_after(buf_span(&original), 1), span_of(wraps[i].uri), wraps[i].wrapped);
        buf_release(&wrapped);
        buf_release(&original);
    }
}

static void a_uri_that_is_not_wrapped_is_left_unchanged(void **state)
{
    (void)state;
    static const char *const bare[] = {
        "",      "file:///x", "postern://", "postern:///x",  "postern://key",       "postern:/k/x",
        "ui://", "ui:///x",   "ui://key",   "Postern://k/x", "http://postern://k/x"};
    for (size_t i = 0; i < COUNT(bare); i++) {
        struct buf original = {0};
        struct span key;
        assert_row(!uri_unwrap(span_of(bare[i]), &key, &original), bare[i]);
        assert_int_equal(original.len, 0);
        buf_release(&original);
    }
}

static void web_addresses_are_recognized(void **state)
{
    (void)state;
    static const struct {
        const char *uri;
        bool web;
    } rows[] = {{"http://a", true},  {"HTTPS://a", true},  {"https://a", true}, {"http://", false},
                {"https://", false}, {"httpx://a", false}, {"file://a", false}, {"postern://k/http://a", false},
                {"", false}};
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(uri_is_web(span_of(rows[i].uri)) == rows[i].web, rows[i].uri);
}

static void templates_match_their_expansions(void **state)
{
    (void)state;
    static const struct {
        const char *uri, *uri_template;
        bool match;
    } rows[] = {
        {"file:///a", "file:///{name}", true},
        {"file:///a/b", "file:///{name}", true},
        {"file:///a/b", "file:///{+path}", true},
        {"file:///", "file:///{name}", true},
        {"file://", "file:///{name}", false},
        {"db://users/7", "db://{table}/{id}", true},
        {"db://users", "db://{table}/{id}", false},
        {"db://users/7/x", "db://{table}/7", false},
        {"db://users/7/7", "db://{table}/7", true},
        {"x/a/b/c/d", "x/{a}/c/{b}", true},
        {"x/abcabd", "x/{v}abd", true},
        {"x/aaab", "x/{v}aab", true},
        {"q?a=1", "q{?a,b}", true},
        {"q", "q{?a,b}", true},
        {"q", "q{?a}{&b}", true},
        {"plain", "plain", true},
        {"plain", "plainer", false},
        {"plainer", "plain", false},
        {"", "", true},
        {"", "{x}", true},
        {"a", "", false},
        {"a", "{unclosed", false},
        {"", "{unclosed", false},
        {"anything at all", "{x}", true},
        {"postern://k/file:///a", "postern://k/file:///{name}", true},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(uri_matches_template(span_of(rows[i].uri), span_of(rows[i].uri_template)) == rows[i].match,
                   rows[i].uri_template);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrapped_uri_unwraps_to_the_original),
        cmocka_unit_test(a_uri_that_is_not_wrapped_is_left_unchanged),
        cmocka_unit_test(web_addresses_are_recognized),
        cmocka_unit_test(templates_match_their_expansions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
