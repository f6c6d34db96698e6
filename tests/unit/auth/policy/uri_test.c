// Tests the canonical spelling of URIs: canonical ones, the canonical spelling of others, templates, and patterns.
#include "unit.h"
#include "uri_form.h"

#define HUNDRED "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

// ---- URIs -----------------------------------------------------------------------------------

static const char *const canonical[] = {
    // Ordinary schemes, with and without an authority.
    "file:///srv/a.txt",
    "file:///",
    "file:///srv/.hidden",
    "file:///srv/...",
    "file:///srv/..a",
    "file:///srv/a..",
    "file:///C:/Users/ann",
    "file:///C:",
    "test://static-text",
    "test://template/1/data",
    "memo://insights",
    "demo://resource/static/document/features.md",
    "mirror:///one",
    "ui://panel/main.html",
    "postern://k/x",
    "postgres://10.0.0.1:5432/db/table/schema",
    "users://123",
    "gdrive:///1AbC-dEf_9",
    "git+ssh://example.com/a",
    "urn:isbn:0451450523",
    "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "mailto:ann@example.com",
    "data:text/plain,hello%20world",
    "https://example.com/",
    "https://example.com/a/b/",
    "https://example.com/a?b=c",
    "https://example.com:8443/a",
    "http://127.0.0.1/",
    "http://[::1]:8080/a",
    "http://xn--mnchen-3ya.example/",
    "x://host",
    "x://host/",
    "x://host?q=1",
    "x://a/b/",
    // Characters that are raw in a path, and those that are escaped there.
    "file:///-._~!$&'()*+,;=:@AZaz09",
    "file:///%20%22%23%25%3C%3E%3F%5B%5D%5E%60%7B%7C%7D",
    "file:///%C3%A9/%E2%82%AC/%F0%9F%98%80",
    "file:///100%25",
    "file:///100%25z9",
    // The same in a query, where a plus sign is escaped and a question mark is raw.
    "x://h/p?-._~!$&'()*,;=:@/?AZ09",
    "x://h/p?%20%22%23%25%2B%3C%3E%5B%5D%5E%60%7B%7C%7D%C3%A9",
    "x://h/p?url=https://example.com/a",
    // In the host of a scheme that is not one of the web.
    "note://my%20note",
    "users://ann%40example.com/profile",
    "x://-._~!$&'()*+,;=",
    "x://h/" HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED,
};

// Other spellings, each with the canonical one, or NULL if a URI has no canonical spelling.
static const struct {
    const char *uri, *canonical;
} others[] = {
    // Empty segments and final slashes.
    {"file:///srv//secret", "file:///srv/secret"},
    {"file:////srv/secret", "file:///srv/secret"},
    {"file://///srv/secret", "file:///srv/secret"},
    {"file:///srv/secret/", "file:///srv/secret"},
    {"file:///srv/secret//", "file:///srv/secret"},
    {"https://h/a//b", "https://h/a/b"},
    {"https://h//", "https://h/"},
    {"x://h//a", "x://h/a"},
    {"x://h/a//", "x://h/a/"},
    {"x:a//b", "x:a/b"},
    // Escapes of characters that need none, and lower-case hex.
    {"file:///srv/a%40b", "file:///srv/a@b"},
    {"file:///srv/a%2Bb", "file:///srv/a+b"},
    {"file:///srv/a%2bb", "file:///srv/a+b"},
    {"file:///srv/k%65y", "file:///srv/key"},
    {"file:///srv/key%2Epem", "file:///srv/key.pem"},
    {"file:///srv/%7Ea", "file:///srv/~a"},
    {"file:///srv/a%3Ab", "file:///srv/a:b"},
    {"file:///srv/a%3Bb", "file:///srv/a;b"},
    {"file:///srv/a%2Cb", "file:///srv/a,b"},
    {"file:///srv/a%27b", "file:///srv/a'b"},
    {"file:///srv/a%2Ab", "file:///srv/a*b"},
    {"file:///srv/a%c3%a9", "file:///srv/a%C3%A9"},
    {"file:///srv/a%5bb", "file:///srv/a%5Bb"},
    {"file:///C%3A/a", "file:///C:/a"},
    {"x://h/p?a%3Db", "x://h/p?a=b"},
    {"x://h/p?a%2Fb", NULL},  // a server may distinguish the two slashes
    {"x://h/p?a%3Fb", "x://h/p?a?b"},
    {"x://h/p?a+b", "x://h/p?a%2Bb"},
    {"x://h/p?a%26b", NULL},
    // Characters that are never raw.
    {"file:///srv/a b", "file:///srv/a%20b"},
    {"file:///srv/\xC3\xA9", "file:///srv/%C3%A9"},
    {"file:///srv/a[1]", "file:///srv/a%5B1%5D"},
    {"file:///srv/a|b", "file:///srv/a%7Cb"},
    {"file:///srv/a\"b", "file:///srv/a%22b"},
    {"file:///srv/{a}", "file:///srv/%7Ba%7D"},
    {"file:///srv/a^`<>", "file:///srv/a%5E%60%3C%3E"},
    {"file:///srv/a%", "file:///srv/a%25"},
    {"file:///srv/a%2", "file:///srv/a%252"},
    {"file:///srv/a%zz", "file:///srv/a%25zz"},
    {"file:///srv/a\tb", NULL},
    {"file:///srv/a\nb", NULL},
    {"file:///srv/a\x7f", NULL},
    {"file:///srv/a\1b", NULL},
    {" file:///srv/a", NULL},
    {"file:///srv/a ", "file:///srv/a%20"},
    // Bytes and escapes that servers may read differently.
    {"file:///srv/a%2Fb", NULL},
    {"file:///srv/a%2fb", NULL},
    {"file:///srv/a\\b", NULL},
    {"file:///srv/a%5Cb", NULL},
    {"file:///srv/a%00", NULL},
    {"file:///srv/a%0A", NULL},
    {"file:///srv/a%7F", NULL},
    {"file:///srv/%252e%252e/a", NULL},
    {"file:///srv/%2525", NULL},
    {"file:///srv/%C0%AF", NULL},
    {"file:///srv/%FF", NULL},
    {"file:///srv/%E2%82", NULL},
    {"file:///srv/%A9", NULL},
    {"file:///srv/%ED%A0%80", NULL},
    {"file:///srv/%F5%80%80%80", NULL},
    // Dot segments.
    {"file:///srv/../etc", "file:///etc"},
    {"file:///srv/a/../../b", "file:///b"},
    {"file:///srv/./a", "file:///srv/a"},
    {"file:///srv/..", "file:///"},
    {"file:///srv/.", "file:///srv"},
    {"file:///srv/%2e%2e/etc", "file:///etc"},
    {"file:///srv/.%2E/etc", "file:///etc"},
    {"file:///../..", "file:///"},
    {"https://h/a/..", "https://h/"},
    {"https://h/a/./b/", "https://h/a/b/"},
    {"x:../a", "x:a"},
    {"x://../a", NULL},
    {"x://./a", NULL},
    {"x://h/p?f=/a/../b", NULL},
    {"x://h/p?f=../b", NULL},
    // Schemes, hosts and ports.
    {"FILE:///srv/a", "file:///srv/a"},
    {"File:///srv/a", "file:///srv/a"},
    {"file:/srv/a", "file:///srv/a"},
    {"file:srv/a", "file:///srv/a"},
    {"file://localhost/srv/a", "file:///srv/a"},
    {"file://LocalHost/srv/a", "file:///srv/a"},
    {"file://srv/a", NULL},
    {"file:", NULL},
    {"file://", NULL},
    {"file:///c:/a", "file:///C:/a"},
    {"file:///c:", "file:///C:"},
    {"file:///C|/a", "file:///C%7C/a"},
    {"file:///srv/a?x", "file:///srv/a"},
    {"file:///srv/a?", "file:///srv/a"},
    {"file:///srv/a#x", "file:///srv/a"},
    {"file:///srv/a#", "file:///srv/a"},
    {"file://me@host/srv/a", NULL},
    {"HTTPS://example.com/", "https://example.com/"},
    {"https://Example.COM/A", "https://example.com/A"},
    {"https://example.com", "https://example.com/"},
    {"https://example.com?a", "https://example.com/?a"},
    {"https://example.com/?", "https://example.com/"},
    {"https://example.com/#x", "https://example.com/"},
    {"https:example.com/a", "https://example.com/a"},
    {"https:/example.com/a", "https://example.com/a"},
    {"https:///example.com/a", "https://example.com/a"},
    {"https://example.com:443/", "https://example.com/"},
    {"http://example.com:80/", "http://example.com/"},
    {"https://example.com:/", "https://example.com/"},
    {"https://example.com:08443/", NULL},
    {"https://example.com:0/", NULL},
    {"https://example.com:70000/", NULL},
    {"https://example.com./", NULL},
    {"https://.example.com/", NULL},
    {"https://example..com/", NULL},
    {"https://user:pw@example.com/", NULL},
    {"https://example.com@evil.com/", NULL},
    {"https://exampl%65.com/", "https://example.com/"},
    {"https://m%C3%BCnchen.example/", NULL},
    {"https://m\xC3\xBCnchen.example/", NULL},
    {"http://127.1/", NULL},
    {"http://2130706433/", NULL},
    {"http://0x7f000001/", NULL},
    {"http://0x7F.0.0.1/", NULL},
    {"http://0177.0.0.1/", NULL},
    {"http://127.0.0.01/", NULL},
    {"http://a.b.256/", NULL},
    {"http://[0:0:0:0:0:0:0:1]/", NULL},
    {"http://[::1/", NULL},
    {"http://[::1]x/", NULL},
    {"http://[fe80::1%25eth0]/", NULL},
    {"http:///", NULL},
    {"x://HOST/a", "x://host/a"},
    {"greeting://Alice", "greeting://alice"},
    {"x:/a", "x:///a"},
    {"x://h:/a", "x://h/a"},
    {"x://me@h/a", NULL},
    {"x://a%40b@h/a", NULL},
    {"x://:80/a", NULL},
    {"x://h%3A80/a", NULL},
    {"x://h#", "x://h"},
    {"x://h?", "x://h"},
    {"x:?a", NULL},
    // Not a URI at all.
    {"", NULL},
    {"srv/a", NULL},
    {"/srv/a", NULL},
    {"//srv/a", NULL},
    {"../a", NULL},
    {":a", NULL},
    {"1x://a", NULL},
    {"x", NULL},
    {"x:", NULL},
    {"*", NULL},
};

static void a_uri_of_canonical_spelling_is_canonical(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(canonical); i++) {
        struct buf spelled = {0};
        assert_row(policy_uri_is_canonical(span_of(canonical[i])), canonical[i]);
        assert_row(policy_uri_template_is_canonical(span_of(canonical[i])) == !strstr(canonical[i], "%7B"),
                   canonical[i]);
        assert_row(policy_uri_put_canonical(span_of(canonical[i]), false, &spelled), canonical[i]);
        assert_span(buf_span(&spelled), span_of(canonical[i]), canonical[i]);
        buf_release(&spelled);
    }
}

static void other_spellings_of_a_uri_have_one_canonical_spelling(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(others); i++) {
        struct buf spelled = {0};
        assert_row(!policy_uri_is_canonical(span_of(others[i].uri)), others[i].uri);
        bool found = policy_uri_put_canonical(span_of(others[i].uri), false, &spelled);
        assert_span(buf_span(&spelled), span_of(others[i].canonical ? others[i].canonical : ""), others[i].uri);
        assert_row(found == (others[i].canonical != NULL), others[i].uri);
        buf_release(&spelled);
    }
}

static void the_length_of_a_canonical_uri_is_bounded(void **state)
{
    (void)state;
    struct buf uri = {0}, out = {0};
    buf_put_text(&uri, "x://h/");
    while (uri.len < POLICY_URI_MAX)
        buf_put_char(&uri, 'a');
    assert_true(policy_uri_is_canonical(buf_span(&uri)));
    buf_put_char(&uri, 'a');
    assert_false(policy_uri_is_canonical(buf_span(&uri)));
    assert_false(policy_uri_template_is_canonical(buf_span(&uri)));
    assert_false(policy_uri_put_canonical(buf_span(&uri), false, &out));
    buf_release(&uri);
}

static void a_uri_with_a_zero_byte_is_not_canonical(void **state)
{
    (void)state;
    static const char with_zero[] = "file:///srv/a\0.txt", in_host[] = "https://[::1\0]/", inside[] = "file:///{a\0}";
    assert_false(policy_uri_is_canonical(span_make(with_zero, sizeof with_zero - 1)));
    assert_false(policy_uri_is_canonical(span_make(in_host, sizeof in_host - 1)));
    assert_false(policy_uri_template_is_canonical(span_make(inside, sizeof inside - 1)));
}

// ---- templates and patterns -----------------------------------------------------------------

static const struct {
    const char *text;
    bool ok;
} templates[] = {
    {"file:///{path}", true},
    {"file:///{+path}", true},
    {"file://{+path}", true},
    {"file:///srv{/path*}", true},
    {"demo://resource/dynamic/text/{resourceId}", true},
    {"greeting://{name}", true},
    {"repo://{owner}/{repo}/contents{/path*}", true},
    {"weather://{city}/now?units={units}", true},
    {"https://api.example.com/v1{/path*}{?q,limit}", true},
    {"https://api.example.com:{port}/{+path}{&more}{#part}", true},
    {"db://{table:3}/{id}{;v}{.format}", true},
    {"{scheme}://{host}/x", true},
    {"{+uri}", true},
    {"file:///srv//{path}", false},
    {"file:////{path}", false},
    {"file:/{path}", true},  // an expansion could begin with file:///
    {"file:/srv/{path}", false},
    {"file:srv/{path}", false},
    {"file://localhost/{path}", false},
    {"file:///srv/{path}/", false},
    {"file:///srv/../{path}", false},
    {"file:///{path}/../x", false},
    {"file:///{path}/..", false},
    {"file:///srv/%2e/{path}", false},
    {"file:///srv/a%40b/{path}", false},
    {"file:///srv/a b/{path}", false},
    {"file:///{a}//b", false},
    {"FILE:///{path}", false},
    {"x://Host/{path}", false},
    {"https://h/a//{path}", false},
    {"file:///%7Bpath%7D", false},
    {"file:///{path", false},
    {"file:///path}", false},
    {"file:///{}", false},
    {"file:///{a b}", false},
    {"file:///{a{b}}", false},
    {"file:///{a}#x", false},
    {"", false},
    {"path/{x}", false},
};

static void canonical_uri_templates_match_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(templates); i++)
        assert_row(policy_uri_template_is_canonical(span_of(templates[i].text)) == templates[i].ok, templates[i].text);
    struct buf spelled = {0};
    assert_false(policy_uri_put_canonical(SPAN("file:///a b/{path}"), true, &spelled));
    assert_true(policy_uri_put_canonical(SPAN("file:///a b"), true, &spelled));
    assert_span(buf_span(&spelled), SPAN("file:///a%20b"), "a template without expressions");
    buf_release(&spelled);
}

static const struct {
    const char *pattern;
    bool resource, template;  // the pattern can match an item of this kind
} patterns[] = {
    {"*", true, true},
    {"*.pem", true, true},
    {"*/.ssh/*", true, true},
    {"file:*", true, true},
    {"file:/*", true, true},
    {"file://*", true, true},
    {"file:///*", true, true},
    {"file:///srv/*", true, true},
    {"file:///srv/a*/b", true, true},
    {"file:///srv/\\*", true, true},
    {"file*", true, true},
    {"https://example.com/*", true, true},
    {"https://example.com*", true, true},
    {"https://*.example.com/*?q=*", true, true},
    {"urn:isbn:*", true, true},
    {"*%20*", true, true},
    {"*%2*", true, true},
    {"*%82%AC", true, true},
    {"x://h/a%*", true, true},
    {"x://h%*", true, true},
    {"x://h/*?", true, true},
    {"x://h/?", false, false},
    {"x://h%E2%*", true, true},
    {"file:///%E2%82*", true, true},
    {"file:///srv/{path}", false, true},
    {"file:///{*}", false, true},
    {"file:///{pa*", false, true},
    {"file:///*th}", false, true},
    {"file:///srv//*", false, false},
    {"file:////*", false, false},
    {"file:/srv/*", false, false},
    {"file:srv*", false, false},
    {"file://localhost/*", false, false},
    {"file:///srv/*/", false, false},
    {"file:///srv/*//a", false, false},
    {"file:///*/../a", false, false},
    {"file:///a b*", false, false},
    {"file:///*?a", false, false},
    {"file:///*#a", false, false},
    {"*%40*", true, true},  // in a host
    {"*%41*", false, false},
    {"*%c3*", false, false},
    {"*\\\\*", false, false},
    {"FILE:///*", false, false},
    {"https://Example.com/*", false, false},
    {"https://example.com", false, false},
    {"handbook", false, false},
    {"", false, false},
};

static void uri_patterns_that_can_match_are_those_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(patterns); i++) {
        assert_row(policy_uri_pattern_can_match(patterns[i].pattern, false) == patterns[i].resource,
                   patterns[i].pattern);
        assert_row(policy_uri_pattern_can_match(patterns[i].pattern, true) == patterns[i].template,
                   patterns[i].pattern);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uri_of_canonical_spelling_is_canonical),
        cmocka_unit_test(other_spellings_of_a_uri_have_one_canonical_spelling),
        cmocka_unit_test(the_length_of_a_canonical_uri_is_bounded),
        cmocka_unit_test(a_uri_with_a_zero_byte_is_not_canonical),
        cmocka_unit_test(canonical_uri_templates_match_the_table),
        cmocka_unit_test(uri_patterns_that_can_match_are_those_of_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
