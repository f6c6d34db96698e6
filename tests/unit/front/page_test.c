// Tests the pages: the status and headers of each kind, and that every text in the HTML and the headers is escaped.
#include "page.h"
#include "unit.h"

static const char hostile[] = "<script>alert(1)</script>\"'&";

static char *render(const struct connect_page *page, unsigned *status, char **headers)
{
    struct buf html = {0}, lines = {0};
    *status = page_text_render(page, &html, &lines);
    *headers = buf_take(&lines, NULL);
    return buf_take(&html, NULL);
}

static void every_text_of_a_page_is_escaped(void **state)
{
    (void)state;
    const struct connection connections[] = {{hostile, "https://as.example", hostile, CONNECTION_GOOD},
                                             {hostile, hostile, hostile, CONNECTION_ENDED},
                                             {hostile, hostile, NULL, CONNECTION_DAMAGED},
                                             {hostile, NULL, NULL, CONNECTION_NONE}};
    for (int kind = 0; kind < CONNECT_PAGE_KINDS; kind++) {
        struct connect_page page = {.kind = (enum connect_page_kind)kind,
                                    .server = hostile,
                                    .user = hostile,
                                    .tenant = hostile,
                                    .issuer = hostile,
                                    .scope = hostile,
                                    .unbound = true,
                                    .ticket = hostile,
                                    .csrf = hostile,
                                    .url = kind == CONNECT_PAGE_REDIRECT || kind == CONNECT_PAGE_RETURN ? "connections"
                                                                                                        : hostile,
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

static void pages_have_the_status_of_their_kind(void **state)
{
    (void)state;
    static const struct {
        enum connect_page_kind kind;
        unsigned status;
    } rows[] = {
        {CONNECT_PAGE_FAILED, 502},     {CONNECT_PAGE_CONSENT, 200},         {CONNECT_PAGE_AUTHORIZE, 200},
        {CONNECT_PAGE_REDIRECT, 303},   {CONNECT_PAGE_CONNECTED, 200},       {CONNECT_PAGE_DECLINED, 200},
        {CONNECT_PAGE_LIST, 200},       {CONNECT_PAGE_EXPIRED, 410},         {CONNECT_PAGE_USED, 409},
        {CONNECT_PAGE_WRONG_USER, 403}, {CONNECT_PAGE_WRONG_BROWSER, 403},   {CONNECT_PAGE_UNKNOWN_LOGIN, 400},
        {CONNECT_PAGE_FORGED, 403},     {CONNECT_PAGE_UNAUTHENTICATED, 403}, {CONNECT_PAGE_NO_SERVER, 404},
        {CONNECT_PAGE_LIMITED, 429},    {CONNECT_PAGE_RETURN, 303},          {CONNECT_PAGE_NO_RETURN, 400},
        {CONNECT_PAGE_NO_SCOPE, 403},   {CONNECT_PAGE_UNAVAILABLE, 503},
    };
    assert_int_equal(sizeof rows / sizeof *rows, CONNECT_PAGE_KINDS);
    for (size_t i = 0; i < CONNECT_PAGE_KINDS; i++) {
        struct connect_page page = {.kind = rows[i].kind, .url = "connections"};
        unsigned status;
        char *headers, *html = render(&page, &status, &headers);
        assert_int_equal(status, rows[i].status);
        assert_non_null(strstr(headers, "Content-Security-Policy: default-src 'none'; style-src 'sha256-"));
        assert_non_null(strstr(html, "<h1>"));
        free(html);
        free(headers);
    }
}

static void a_page_sets_its_cookies(void **state)
{
    (void)state;
    struct connect_page page = {.kind = CONNECT_PAGE_AUTHORIZE,
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
        cmocka_unit_test(every_text_of_a_page_is_escaped),
        cmocka_unit_test(pages_have_the_status_of_their_kind),
        cmocka_unit_test(a_page_sets_its_cookies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
