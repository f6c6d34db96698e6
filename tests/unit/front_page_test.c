// The pages: status and headers of each, and that nothing from elsewhere gets into the HTML or the headers as it is.
#include "../../src/front/page.h"
#include "unit.h"

static const char hostile[] = "<script>alert(1)</script>\"'&";

static char *render(const struct hosted_page *page, unsigned *status, char **headers)
{
    struct buf html = {0}, lines = {0};
    *status = page_render(page, &html, &lines);
    *headers = buf_take(&lines, NULL);
    return buf_take(&html, NULL);
}

static void test_everything_is_escaped(void **state)
{
    (void)state;
    const struct hosted_connection connections[] = {{hostile, "https://as.example", hostile, CONNECTION_GOOD},
                                                    {hostile, hostile, hostile, CONNECTION_ENDED},
                                                    {hostile, hostile, NULL, CONNECTION_DAMAGED},
                                                    {hostile, NULL, NULL, CONNECTION_NONE}};
    for (int kind = 0; kind < HOSTED_KINDS; kind++) {
        struct hosted_page page = {.kind = (enum hosted_kind)kind,
                                   .server = hostile,
                                   .user = hostile,
                                   .tenant = hostile,
                                   .issuer = hostile,
                                   .scope = hostile,
                                   .unbound = true,
                                   .ticket = hostile,
                                   .csrf = hostile,
                                   .url = kind == HOSTED_MOVED || kind == HOSTED_RETURNS ? "connections" : hostile,
                                   .connections = connections,
                                   .connection_count = COUNT(connections)};
        unsigned status;
        char *headers, *html = render(&page, &status, &headers);
        assert_null(strstr(html, "<script"));
        assert_null(strstr(html, "\"'&"));
        assert_null(strstr(headers, hostile));
        free(html);
        free(headers);
    }
}

static void test_statuses(void **state)
{
    (void)state;
    static const struct {
        enum hosted_kind kind;
        unsigned status;
    } rows[] = {
        {HOSTED_FAILED, 502},    {HOSTED_ASKS, 200},       {HOSTED_CONTINUES, 200},     {HOSTED_MOVED, 303},
        {HOSTED_CONNECTED, 200}, {HOSTED_DECLINED, 200},   {HOSTED_LISTS, 200},         {HOSTED_EXPIRED, 410},
        {HOSTED_USED, 409},      {HOSTED_WRONG_USER, 403}, {HOSTED_WRONG_BROWSER, 403}, {HOSTED_STRANGE, 400},
        {HOSTED_FORGED, 403},    {HOSTED_NOBODY, 403},     {HOSTED_NO_SERVER, 404},     {HOSTED_LIMITED, 429},
        {HOSTED_RETURNS, 303},   {HOSTED_NO_RETURN, 400},  {HOSTED_NO_SCOPE, 403},      {HOSTED_UNAVAILABLE, 503},
    };
    assert_int_equal(sizeof rows / sizeof *rows, HOSTED_KINDS);
    for (size_t i = 0; i < HOSTED_KINDS; i++) {
        struct hosted_page page = {.kind = rows[i].kind, .url = "connections"};
        unsigned status;
        char *headers, *html = render(&page, &status, &headers);
        assert_int_equal(status, rows[i].status);
        assert_non_null(strstr(headers, "Content-Security-Policy: default-src 'none'; style-src 'sha256-"));
        assert_non_null(strstr(html, "<h1>"));
        free(html);
        free(headers);
    }
}

static void test_cookies(void **state)
{
    (void)state;
    struct hosted_page page = {.kind = HOSTED_CONTINUES,
                               .url = "https://as.example/",
                               .secure = true,
                               .cookies = {{"__Host-a", "b", 60}, {"__Host-c", "", 0}},
                               .cookie_count = 2};
    unsigned status;
    char *headers, *html = render(&page, &status, &headers);
    assert_non_null(strstr(headers, "Set-Cookie: __Host-a=b; Path=/; Max-Age=60; HttpOnly; SameSite=Lax; Secure\n"));
    assert_non_null(strstr(headers, "Set-Cookie: __Host-c=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure\n"));
    free(html);
    free(headers);
    page.secure = false;
    html = render(&page, &status, &headers);
    assert_null(strstr(headers, "Secure"));
    free(html);
    free(headers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_escaped),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_cookies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
