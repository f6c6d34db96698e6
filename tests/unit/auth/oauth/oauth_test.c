// Tests the functions of OAuth that do no I/O: challenges, URLs, metadata, scopes, clients, callbacks and tokens,
// mostly as tables.
#include "auth/oauth/oauth.h"
#include "base/secret.h"
#include "unit.h"

static bool same(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

// ---- challenges -----------------------------------------------------------------------------

static void D1_challenges_are_parsed_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        bool bearer;
        const char *metadata, *scope, *error, *description;
    } rows[] = {
        {"", false, NULL, NULL, NULL, NULL},
        {"Bearer", true, NULL, NULL, NULL, NULL},
        {"bEARER", true, NULL, NULL, NULL, NULL},
        {"Bearer resource_metadata=\"https://a/b\"", true, "https://a/b", NULL, NULL, NULL},
        {"Bearer error=\"invalid_token\", error_description=\"no\", scope=\"a b\"", true, NULL, "a b", "invalid_token",
         "no"},
        {"Bearer error_description=\"x\", error=insufficient_scope", true, NULL, NULL, "insufficient_scope", "x"},
        {"Basic realm=\"x, Bearer scope=y\", Bearer scope=\"s\"", true, NULL, "s", NULL, NULL},
        {"Basic dGVzdA==, Bearer scope=s", true, NULL, "s", NULL, NULL},
        {"Negotiate, Bearer scope=s", true, NULL, "s", NULL, NULL},
        {"Bearer scope=s, Basic realm=\"r\"", true, NULL, "s", NULL, NULL},
        {"Bearer realm=\"a \\\" b\\\\\", scope=\"q\\\"q\"", true, NULL, "q\"q", NULL, NULL},
        {"Bearer SCOPE = \"s\" , Resource_Metadata=\"m\"", true, "m", "s", NULL, NULL},
        {"Bearer scope=first, Bearer resource_metadata=\"m\"", true, "m", NULL, NULL, NULL},
        {"Bearer resource_metadata=\"m\", Bearer resource_metadata=\"n\"", true, "m", NULL, NULL, NULL},
        {"Bearer scope=\"\"", true, NULL, NULL, NULL, NULL},
        {"Bearer scope=\"open", true, NULL, NULL, NULL, NULL},
        {"Bearer scope=a, scope=b", true, NULL, "a", NULL, NULL},
        {",,, ,Bearer ,scope=a,,", true, NULL, "a", NULL, NULL},
        {"Basic realm=\"Bearer\"", false, NULL, NULL, NULL, NULL},
        {"DPoP algs=\"ES256\", Bearer error=\"e\"", true, NULL, NULL, "e", NULL},
        {"= Bearer", false, NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct oauth_challenge got = {0};
        oauth_challenge_parse(span_of(rows[i].header), &arena, &got);
        assert_row(got.bearer == rows[i].bearer, rows[i].header);
        assert_row(same(got.resource_metadata, rows[i].metadata), rows[i].header);
        assert_row(same(got.scope, rows[i].scope), rows[i].header);
        assert_row(same(got.error, rows[i].error), rows[i].header);
        assert_row(same(got.error_description, rows[i].description), rows[i].header);
        arena_release(&arena);
    }
}

static void D1_several_challenge_headers_of_a_response_are_read(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct oauth_challenge got = {0};
    oauth_challenge_parse(SPAN("Basic realm=x"), &arena, &got);
    oauth_challenge_parse(SPAN("Bearer scope=a"), &arena, &got);
    oauth_challenge_parse(SPAN("Bearer resource_metadata=\"m\", scope=b"), &arena, &got);
    assert_string_equal(got.resource_metadata, "m");
    assert_string_equal(got.scope, "b");
    arena_release(&arena);
}

// ---- URLs -----------------------------------------------------------------------------------

static void N1_D14_only_safe_urls_are_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *url;
        bool secure;
    } rows[] = {
        {"https://a.example/token", true},
        {"HTTPS://A.example", true},
        {"http://127.0.0.1:8080/x", true},
        {"http://localhost/x", true},
        {"http://LOCALHOST/x", true},
        {"http://[::1]:1/x", true},
        {"http://a.example/token", false},
        {"http://198.51.100.1/token", false},
        {"http://127.example.com/", false},
        {"http://localhost.example.com/", false},
        {"https://user@a.example/", false},
        {"https://a.example:0/", false},
        {"https://a.example:65536/", false},
        {"https://a.example:/", false},
        {"https://a.example/#f", false},
        {"https://a.example/ x", false},
        {"https://a.example\\@b.example/", false},
        {"https://", false},
        {"file:///etc/passwd", false},
        {"javascript:alert(1)", false},
        {"search-ms:query", false},
        {"data:text/html,x", false},
        {"//a.example/", false},
        {"", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(oauth_url_secure(rows[i].url) == rows[i].secure, rows[i].url);
}

static void assert_urls(size_t count, const char **got, const char *const *want, const char *label)
{
    for (size_t i = 0; i < OAUTH_URLS_MAX; i++)
        assert_row(i < count ? want[i] && strcmp(got[i], want[i]) == 0 : !want[i], label);
}

static void D3_D4_resource_metadata_are_looked_for_at_well_known_urls(void **state)
{
    (void)state;
    static const struct {
        const char *url, *want[OAUTH_URLS_MAX];
    } rows[] = {
        {"https://h:8443/mcp",
         {"https://h:8443/.well-known/oauth-protected-resource/mcp",
          "https://h:8443/.well-known/oauth-protected-resource"}},
        {"https://h", {"https://h/.well-known/oauth-protected-resource"}},
        {"https://h/", {"https://h/.well-known/oauth-protected-resource"}},
        {"https://h/a/b?q=1",
         {"https://h/.well-known/oauth-protected-resource/a/b?q=1", "https://h/.well-known/oauth-protected-resource"}},
        {"https://h/mcp/",
         {"https://h/.well-known/oauth-protected-resource/mcp/", "https://h/.well-known/oauth-protected-resource"}},
        {"ftp://h/", {NULL}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        const char *got[OAUTH_URLS_MAX];
        assert_urls(oauth_resource_urls(rows[i].url, &arena, got), got, rows[i].want, rows[i].url);
        arena_release(&arena);
    }
}

static void D8_server_metadata_are_looked_for_at_well_known_urls(void **state)
{
    (void)state;
    static const struct {
        const char *issuer, *want[OAUTH_URLS_MAX];
    } rows[] = {
        {"https://as",
         {"https://as/.well-known/oauth-authorization-server", "https://as/.well-known/openid-configuration"}},
        {"https://as/",
         {"https://as/.well-known/oauth-authorization-server", "https://as/.well-known/openid-configuration"}},
        {"https://as:1/t",
         {"https://as:1/.well-known/oauth-authorization-server/t", "https://as:1/.well-known/openid-configuration/t",
          "https://as:1/t/.well-known/openid-configuration"}},
        {"https://as/t/u/",
         {"https://as/.well-known/oauth-authorization-server/t/u", "https://as/.well-known/openid-configuration/t/u",
          "https://as/t/u/.well-known/openid-configuration"}},
        {"https://as/?q", {NULL}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        const char *got[OAUTH_URLS_MAX];
        assert_urls(oauth_server_urls(rows[i].issuer, &arena, got), got, rows[i].want, rows[i].issuer);
        arena_release(&arena);
    }
}

// A well-known URL that is derived from a URL of maximum length would exceed that length itself.
static void D8_a_metadata_url_that_would_be_too_long_is_left_out(void **state)
{
    (void)state;
    struct arena arena = {0};
    char url[2049];
    const char *got[OAUTH_URLS_MAX];
    const char *const origin_only[OAUTH_URLS_MAX] = {"https://h/.well-known/oauth-protected-resource"};
    memset(url, 'x', sizeof url - 1);
    memcpy(url, "https://h/", 10);
    url[sizeof url - 1] = '\0';
    assert_urls(oauth_resource_urls(url, &arena, got), got, origin_only, "a long path");
    assert_int_equal(oauth_server_urls(url, &arena, got), 0);
    arena_release(&arena);
}

static void D6_a_resource_covers_the_servers_below_its_url(void **state)
{
    (void)state;
    static const struct {
        const char *resource, *server;
        bool covers;
    } rows[] = {
        {"https://h/mcp", "https://h/mcp", true},       {"https://h", "https://h/mcp", true},
        {"https://h/", "https://h/mcp", true},          {"https://H:443/api", "https://h/api/v1", true},
        {"https://h/mcp/", "https://h/mcp", true},      {"https://h/api", "https://h/api123", false},
        {"https://h/api/v1", "https://h/api", false},   {"https://h:8443/mcp", "https://h/mcp", false},
        {"http://h/mcp", "https://h/mcp", false},       {"https://evil.example/mcp", "https://h/mcp", false},
        {"https://h.evil/mcp", "https://h/mcp", false}, {"https://h/mcp?x", "https://h/mcp", false},
        {"nonsense", "https://h/mcp", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(oauth_resource_covers(rows[i].resource, rows[i].server) == rows[i].covers, rows[i].resource);
}

static void D9_issuers_are_compared_by_bytes_except_for_one_trailing_slash(void **state)
{
    (void)state;
    static const struct {
        const char *expected, *found;
        bool match;
    } rows[] = {
        {"https://as", "https://as", true},
        {"https://as", "https://as/", true},
        {"https://as/", "https://as", true},
        {"https://as/t", "https://as/t", true},
        {"https://as/t", "https://as/t/", false},
        {"https://as", "https://as/t", false},
        {"https://as", "https://AS", false},
        {"https://as", "https://as:443", false},
        {"https://as", "https://as//", false},
        {"https://as", "http://as", false},
        {"https://as", NULL, false},
        {"https://as", "", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(oauth_issuer_matches(rows[i].expected, rows[i].found) == rows[i].match, rows[i].found);
}

// ---- metadata -------------------------------------------------------------------------------

static void N5_an_authorization_server_must_be_in_an_allowed_domain(void **state)
{
    (void)state;
    static char *const list[] = {"login.example.com", "*.corp.example", "127.0.0.1", NULL}, *const none[] = {NULL};
    static const struct {
        const char *issuer;
        bool allowed;
    } rows[] = {
        {"https://login.example.com", true},
        {"https://LOGIN.example.com:8443/tenant", true},
        {"https://a.corp.example", true},
        {"https://a.b.corp.example/x", true},
        {"http://127.0.0.1:9000", true},
        {"https://corp.example", false},
        {"https://evilcorp.example", false},
        {"https://xlogin.example.com", false},
        {"https://login.example.com.evil.example", false},
        {"https://evil.example/login.example.com", false},
        {"https://evil.example?.corp.example", false},
        {"https://login.example.com@evil.example", false},
        {"not a url", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_row(oauth_issuer_allowed(rows[i].issuer, list) == rows[i].allowed, rows[i].issuer);
        assert_row(oauth_issuer_allowed(rows[i].issuer, NULL), rows[i].issuer);
        assert_row(!oauth_issuer_allowed(rows[i].issuer, none), rows[i].issuer);
    }
    static const char *const good[] = {"a", "a.example", "*.a-b.example", "10.0.0.1"}, *const bad[] = {
                                                                                           "",    "*",         "*.",
                                                                                           ".a",  "a..b",      "a/b",
                                                                                           "a:1", "https://a", "a.*",
                                                                                           "a b"};
    for (size_t i = 0; i < COUNT(good); i++)
        assert_row(oauth_issuer_domain_valid(good[i]), good[i]);
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_row(!oauth_issuer_domain_valid(bad[i]), bad[i]);
}

static void D6_N9_resource_metadata_are_parsed_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
    } rows[] = {
        {"{\"resource\":\"https://h/mcp\",\"authorization_servers\":[\"https://as\"]}", true},
        {"{\"resource\":\"https://h/mcp\",\"authorization_servers\":[\"http://as\",\"https://as\"]}", true},
        {"{\"resource\":\"https://other/mcp\",\"authorization_servers\":[\"https://as\"]}", false},
        {"{\"resource\":\"https://h/mcp\"}", false},
        {"{\"resource\":\"https://h/mcp\",\"authorization_servers\":[]}", false},
        {"{\"resource\":\"https://h/mcp\",\"authorization_servers\":[\"http://as\"]}", false},
        {"{\"resource\":\"https://h/mcp\",\"authorization_servers\":[7]}", false},
        {"{\"resource\":null,\"authorization_servers\":[\"https://as\"]}", false},
        {"{\"resource\":\"\",\"authorization_servers\":[\"https://as\"]}", false},
        {"{\"authorization_servers\":[\"https://as\"]}", false},
        {"{\"resource\":\"https://h/mcp\",\"resource\":\"https://h/mcp\",\"authorization_servers\":[\"https://as\"]}",
         false},
        {"[]", false},
        {"<html>", false},
        {"", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct oauth_resource got;
        struct err err = {0};
        bool ok = oauth_resource_parse(span_of(rows[i].text), "https://h/mcp", &arena, &got, &err);
        assert_row(ok == rows[i].ok, rows[i].text);
        if (ok) {
            assert_int_equal(got.server_count, 1);
            assert_string_equal(got.servers[0], "https://as");
        }
        arena_release(&arena);
    }
}

static void A7_an_empty_list_of_scopes_counts_as_absent(void **state)
{
    (void)state;
    static const struct {
        const char *list, *scope;
    } rows[] = {{"[]", NULL}, {"[\"a\",\"b\"]", "a b"}, {"[\"a b\",7,\"\"]", NULL}, {"\"a\"", NULL}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct buf text = {0};
        struct oauth_resource got;
        struct err err = {0};
        buf_printf(&text,
                   "{\"resource\":\"https://h\",\"authorization_servers\":[\"https://as\"],\"scopes_supported\":%s}",
                   rows[i].list);
        assert_true(oauth_resource_parse(buf_span(&text), "https://h/mcp", &arena, &got, &err));
        assert_row(same(got.scope, rows[i].scope), rows[i].list);
        buf_release(&text);
        arena_release(&arena);
    }
}

#define GOOD "\"issuer\":\"https://as\",\"token_endpoint\":\"https://as/t\""

static void D9_D14_N1_server_metadata_are_parsed_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *problem;
    } rows[] = {
        {"{" GOOD "}", NULL},
        {"{" GOOD ",\"authorization_endpoint\":\"https://as/a\"}", NULL},
        {"{" GOOD ",\"registration_endpoint\":null}", NULL},
        {"{\"issuer\":\"https://as/\",\"token_endpoint\":\"https://as/t\"}", NULL},
        {"{\"issuer\":\"https://as/x\",\"token_endpoint\":\"https://as/t\"}", "another issuer"},
        {"{\"issuer\":\"https://evil\",\"token_endpoint\":\"https://as/t\"}", "another issuer"},
        {"{\"token_endpoint\":\"https://as/t\"}", "another issuer"},
        {"{\"issuer\":\"https://as\"}", "token_endpoint is missing"},
        {"{\"issuer\":\"https://as\",\"token_endpoint\":\"http://198.51.100.1/t\"}",
         "token_endpoint is not an https URL"},
        {"{" GOOD ",\"authorization_endpoint\":\"file:///etc/passwd\"}", "authorization_endpoint is not an https URL"},
        {"{" GOOD ",\"authorization_endpoint\":\"javascript:x\"}", "authorization_endpoint is not an https URL"},
        {"{" GOOD ",\"registration_endpoint\":\"http://as/r\"}", "registration_endpoint is not an https URL"},
        {"{" GOOD ",\"revocation_endpoint\":\"ftp://as/r\"}", "revocation_endpoint is not an https URL"},
        {"[1]", "not a JSON object"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct oauth_server got;
        struct err err = {0};
        bool ok = oauth_server_parse(span_of(rows[i].text), "https://as", &arena, &got, &err);
        assert_row(ok == !rows[i].problem, rows[i].text);
        if (rows[i].problem)
            assert_contains(err.detail, rows[i].problem);
        arena_release(&arena);
    }
}

static void D10_the_issuer_is_spelled_as_in_the_metadata(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct oauth_server got;
    struct err err = {0};
    assert_true(oauth_server_parse(SPAN("{\"issuer\":\"https://as/\",\"token_endpoint\":\"https://as/t\"}"),
                                   "https://as", &arena, &got, &err));
    assert_string_equal(got.issuer, "https://as/");
    arena_release(&arena);
}

static void D13_an_authorization_server_must_support_pkce(void **state)
{
    (void)state;
    static const struct {
        const char *issuer, *said;
        bool assume, ok;
    } rows[] = {
        {"https://as", "[\"S256\"]", false, true},
        {"https://as", "[\"plain\",\"S256\"]", false, true},
        {"https://as", "[\"plain\"]", false, false},
        {"https://as", "[\"plain\"]", true, false},
        {"https://as", "[]", true, false},
        {"https://as", "null", false, false},
        {"https://as", "null", true, true},
        {"https://login.microsoftonline.com/x/v2.0", "null", false, true},
        {"https://evil-login.microsoftonline.com/x", "null", false, false},
        {"https://pool.auth.eu.amazoncognito.com", "null", false, true},
        {"https://cognito-idp.eu-west-1.amazonaws.com/p", "null", false, true},
        {"https://cognito-idp.evil.example/p", "null", false, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct buf text = {0};
        struct oauth_server got;
        struct err err = {0};
        buf_printf(&text,
                   "{\"issuer\":\"%s\",\"token_endpoint\":\"https://as/t\",\"code_challenge_methods_supported\":%s}",
                   rows[i].issuer, rows[i].said);
        assert_true(oauth_server_parse(buf_span(&text), rows[i].issuer, &arena, &got, &err));
        assert_row(oauth_server_check_pkce(&got, rows[i].assume, &err) == rows[i].ok, rows[i].issuer);
        buf_release(&text);
        arena_release(&arena);
    }
}

static void D11_default_endpoints_follow_from_the_server_url(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct oauth_server got;
    oauth_server_default("https://h:8443/a/mcp?x", &arena, &got);
    assert_string_equal(got.authorization_endpoint, "https://h:8443/authorize");
    assert_string_equal(got.token_endpoint, "https://h:8443/token");
    assert_string_equal(got.registration_endpoint, "https://h:8443/register");
    arena_release(&arena);
}

// ---- scopes ---------------------------------------------------------------------------------

static void A7_A8_A9_requested_scopes_are_chosen_in_order_of_their_sources(void **state)
{
    (void)state;
    static const struct {
        struct oauth_scope_wish wish;
        const char *want;
    } rows[] = {
        {{.configured = "c", .challenged = "w", .supported = "s"}, "c"},
        {{.challenged = "w x", .supported = "s"}, "w x"},
        {{.supported = "s"}, "s"},
        {{0}, NULL},
        {{.offline = true}, NULL},
        {{.supported = "s", .offline = true}, "s offline_access"},
        {{.supported = "s offline_access", .offline = true}, "s offline_access"},
        {{.challenged = "write", .held = "basic"}, "basic write"},
        {{.configured = "c", .challenged = "write", .held = "c basic"}, "c basic write"},
        {{.challenged = "basic", .held = "basic write"}, "basic write"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        assert_row(same(oauth_scope_choose(&rows[i].wish, &arena), rows[i].want), rows[i].want);
        arena_release(&arena);
    }
}

// ---- clients --------------------------------------------------------------------------------

static void G4_a_registration_has_the_members_of_a_native_or_web_client(void **state)
{
    (void)state;
    struct buf text = {0};
    struct err err = {0};
    oauth_registration_put(
        &(struct oauth_registration){.redirect_uri = "http://127.0.0.1:8085/callback", .native = true}, &text);
    json_t *tree = oauth_document_parse(buf_span(&text), "registration", &err);
    assert_string_equal(oauth_document_string(tree, "application_type"), "native");
    assert_string_equal(oauth_document_string(tree, "token_endpoint_auth_method"), "none");
    assert_int_equal(json_array_size(json_object_get(tree, "redirect_uris")), 1);
    assert_int_equal(json_array_size(json_object_get(tree, "grant_types")), 2);
    assert_null(json_object_get(tree, "scope"));
    json_decref(tree);
    buf_clear(&text);
    oauth_registration_put(&(struct oauth_registration){.redirect_uri = "https://g.example/oauth/callback"}, &text);
    tree = oauth_document_parse(buf_span(&text), "registration", &err);
    assert_string_equal(oauth_document_string(tree, "application_type"), "web");
    json_decref(tree);
    buf_release(&text);
}

static void G2_the_client_document_is_complete(void **state)
{
    (void)state;
    struct buf text = {0};
    struct err err = {0};
    oauth_client_document("https://g.example/oauth/client.json",
                          (const char *const[]){"http://127.0.0.1/callback", "http://localhost/callback", NULL}, true,
                          &text);
    json_t *tree = oauth_document_parse(buf_span(&text), "document", &err);
    assert_string_equal(oauth_document_string(tree, "client_id"), "https://g.example/oauth/client.json");
    assert_string_equal(oauth_document_string(tree, "token_endpoint_auth_method"), "none");
    assert_null(json_object_get(tree, "client_secret"));
    assert_int_equal(json_array_size(json_object_get(tree, "redirect_uris")), 2);
    json_decref(tree);
    buf_release(&text);
}

static void G5_a_registration_asks_for_the_simplest_method_that_the_server_supports(void **state)
{
    (void)state;
    static const struct {
        unsigned methods;
        bool listed;
        enum oauth_method want;
    } rows[] = {
        {0, false, OAUTH_METHOD_NONE},
        {1U << OAUTH_METHOD_NONE | 1U << OAUTH_METHOD_BASIC, true, OAUTH_METHOD_NONE},
        {1U << OAUTH_METHOD_BASIC, true, OAUTH_METHOD_BASIC},
        {1U << OAUTH_METHOD_BASIC | 1U << OAUTH_METHOD_POST, true, OAUTH_METHOD_POST},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct oauth_server server = {.methods = rows[i].methods, .methods_listed = rows[i].listed};
        assert_int_equal(oauth_registration_method(&server), rows[i].want);
    }
}

static void G6_the_method_in_the_registration_response_is_used(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum oauth_method asked;
        bool ok;
        enum oauth_method method;
    } rows[] = {
        {"{\"client_id\":\"c\"}", OAUTH_METHOD_NONE, true, OAUTH_METHOD_NONE},
        {"{\"client_id\":\"c\",\"client_secret\":\"\"}", OAUTH_METHOD_NONE, true, OAUTH_METHOD_NONE},
        {"{\"client_id\":\"c\",\"client_secret\":null}", OAUTH_METHOD_NONE, true, OAUTH_METHOD_NONE},
        {"{\"client_id\":\"c\",\"client_secret\":\"s\"}", OAUTH_METHOD_NONE, true, OAUTH_METHOD_POST},
        {"{\"client_id\":\"c\",\"client_secret\":\"s\"}", OAUTH_METHOD_BASIC, true, OAUTH_METHOD_BASIC},
        {"{\"client_id\":\"c\",\"client_secret\":\"s\",\"token_endpoint_auth_method\":\"none\"}", OAUTH_METHOD_NONE,
         true, OAUTH_METHOD_POST},
        {"{\"client_id\":\"c\",\"client_secret\":\"s\",\"token_endpoint_auth_method\":\"client_secret_basic\"}",
         OAUTH_METHOD_NONE, true, OAUTH_METHOD_BASIC},
        {"{\"client_id\":\"c\",\"token_endpoint_auth_method\":\"client_secret_basic\"}", OAUTH_METHOD_NONE, false, 0},
        {"{\"client_id\":\"c\",\"token_endpoint_auth_method\":\"private_key_jwt\"}", OAUTH_METHOD_NONE, false, 0},
        {"{\"client_id\":\"c\",\"client_secret\":\"s\",\"token_endpoint_auth_method\":\"tls_client_auth\"}",
         OAUTH_METHOD_NONE, false, 0},
        {"{\"client_id\":\"\"}", OAUTH_METHOD_NONE, false, 0},
        {"{}", OAUTH_METHOD_NONE, false, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct oauth_client got;
        struct err err = {0};
        struct oauth_registration wish = {.redirect_uri = "http://127.0.0.1/callback", .method = rows[i].asked};
        bool ok = oauth_registration_parse(span_of(rows[i].text), &wish, &arena, &got, &err);
        assert_row(ok == rows[i].ok, rows[i].text);
        assert_row(!ok || got.method == rows[i].method, rows[i].text);
        arena_release(&arena);
    }
}

static void G7_G14_only_the_known_members_of_a_registration_response_are_kept(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct oauth_client got;
    struct err err = {0};
    struct oauth_registration wish = {.redirect_uri = "http://127.0.0.1/callback", .scope = "read"};
    static const char said[] =
        "{\"client_id\":\"c\",\"client_secret\":\"s\",\"client_secret_expires_at\":1900000000,\"client_id_issued_at\":"
        "1800000000,\"token_endpoint_auth_method\":\"client_secret_basic\",\"registration_access_token\":\"t\","
        "\"registration_client_uri\":\"https://as/reg/c\",\"issuer\":\"https://other.example\",\"redirect_uris\":["
        "\"https://other.example/\"],\"token_endpoint\":\"https://other.example/token\"}";
    assert_true(oauth_registration_parse(span_of(said), &wish, &arena, &got, &err));
    assert_string_equal(got.id, "c");
    assert_string_equal(got.secret, "s");
    assert_int_equal(got.secret_expires, 1900000000);
    assert_int_equal(got.issued, 1800000000);
    assert_int_equal(got.method, OAUTH_METHOD_BASIC);
    assert_string_equal(got.management_token, "t");
    assert_string_equal(got.management_uri, "https://as/reg/c");
    assert_string_equal(got.scope, "read");
    assert_string_equal(got.redirect_uri, "http://127.0.0.1/callback");  // that of the request, not of the response
    static const char *const never[] = {"0", "-5", "null", "\"soon\"", "[]"};
    for (size_t i = 0; i < COUNT(never); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"client_id\":\"c\",\"client_secret\":\"s\",\"client_secret_expires_at\":%s}",
                 never[i]);
        assert_true(oauth_registration_parse(span_of(text), &wish, &arena, &got, &err));
        assert_row(got.secret_expires == 0, never[i]);
    }
    arena_release(&arena);
}

static void G8_a_renewal_names_the_client_and_omits_members_that_the_server_assigns(void **state)
{
    (void)state;
    struct buf text = {0};
    struct err err = {0};
    oauth_registration_put(&(struct oauth_registration){.client_id = "c", .redirect_uri = "https://g/cb"}, &text);
    json_t *tree = oauth_document_parse(buf_span(&text), "registration", &err);
    assert_string_equal(oauth_document_string(tree, "client_id"), "c");
    static const char *const absent[] = {"registration_access_token", "registration_client_uri",
                                         "client_secret_expires_at", "client_id_issued_at"};
    for (size_t i = 0; i < COUNT(absent); i++)
        assert_null(json_object_get(tree, absent[i]));
    json_decref(tree);
    buf_release(&text);
}

static void G8_G9_a_client_is_usable_until_its_secret_expires_or_its_redirect_changes(void **state)
{
    (void)state;
    static const struct {
        struct oauth_client client;
        const char *redirect;
        bool usable;
    } rows[] = {
        {{.id = "c"}, "http://127.0.0.1:8085/callback", true},
        {{.id = "c", .redirect_uri = "http://127.0.0.1:8085/callback"}, "http://127.0.0.1:8085/callback", true},
        {{.id = "c", .redirect_uri = "http://127.0.0.1:8085/callback"}, "http://127.0.0.1:8086/callback", false},
        {{.id = "c", .secret = "s", .secret_expires = 1059}, NULL, false},
        {{.id = "c", .secret = "s", .secret_expires = 1061}, NULL, true},
        {{.id = "c", .secret = "s", .secret_expires = 0}, NULL, true},
        {{0}, NULL, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(oauth_client_usable(&rows[i].client, rows[i].redirect, 1000) == rows[i].usable, rows[i].redirect);
}

static void T1_T2_T3_a_client_authenticates_by_its_method(void **state)
{
    (void)state;
    static const struct {
        enum oauth_method method;
        const char *form, *header;
    } rows[] = {
        {OAUTH_METHOD_NONE, "client_id=a%3Ab", ""},
        {OAUTH_METHOD_POST, "client_id=a%3Ab&client_secret=p%20%2B%25", ""},
        {OAUTH_METHOD_BASIC, "", "Basic YSUzQWI6cCUyMCUyQiUyNQ=="},  // a%3Ab:p%20%2B%25
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct oauth_client client = {.id = "a:b", .secret = "p +%", .method = rows[i].method};
        struct buf form = {0}, header = {0};
        struct err err = {0};
        assert_true(oauth_client_apply(&client, "https://as", 0, &form, &header, &err));
        assert_string_equal(buf_text(&form), rows[i].form);
        assert_string_equal(buf_text(&header), rows[i].header);
        buf_release(&form);
        buf_release(&header);
    }
    struct oauth_client client = {.id = "c", .secret = "s"};
    struct oauth_server silent = {0}, post = {.methods_listed = true, .methods = 1U << OAUTH_METHOD_POST};
    assert_int_equal(oauth_client_method(&client, &silent), OAUTH_METHOD_BASIC);
    assert_int_equal(oauth_client_method(&client, &post), OAUTH_METHOD_POST);
}

// ---- the authorization request --------------------------------------------------------------

static struct oauth_authorization attempt(void)
{
    struct oauth_authorization attempt = {
        .client = {.id = "c"},
        .server = {.issuer = "https://as", .authorization_endpoint = "https://as/a?tenant=x&client_id=evil&resource=r"},
        .redirect_uri = "http://127.0.0.1:8085/callback",
        .resource = "https://h/mcp/",
        .scope = "a b"};
    oauth_authorization_seed(&attempt);
    return attempt;
}

static void A2_A3_the_state_and_verifier_of_each_request_are_fresh(void **state)
{
    (void)state;
    struct oauth_authorization a = attempt(), b = attempt();
    assert_int_equal(strlen(a.state), 43);
    assert_true(strlen(a.verifier) >= 43 && strlen(a.verifier) <= 128);
    assert_string_not_equal(a.state, b.state);
    assert_string_not_equal(a.verifier, b.verifier);
    assert_int_equal(strspn(a.verifier, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
                     strlen(a.verifier));
}

static void A2_the_pkce_challenge_matches_the_example_of_RFC_7636(void **state)
{
    (void)state;
    struct oauth_authorization a = attempt();
    struct buf url = {0};
    snprintf(a.verifier, sizeof a.verifier, "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    oauth_authorization_url(&a, &url);
    assert_contains(buf_text(&url),
                    "code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256");
    assert_null(strstr(buf_text(&url), a.verifier));
    buf_release(&url);
}

static void A5_A6_A11_the_authorization_url_has_the_required_parameters_and_reserved_ones_cannot_be_set(void **state)
{
    (void)state;
    struct oauth_authorization a = attempt();
    struct buf url = {0};
    a.extra[a.extra_count++] = (struct oauth_extra){"audience", "x y"};
    a.extra[a.extra_count++] = (struct oauth_extra){"state", "mine"};
    a.extra[a.extra_count++] = (struct oauth_extra){"resource", "https://second"};
    oauth_authorization_url(&a, &url);
    const char *text = buf_text(&url);
    assert_int_equal(strncmp(text, "https://as/a?tenant=x&response_type=code&client_id=c&", 53), 0);
    assert_contains(text, "&redirect_uri=http%3A%2F%2F127.0.0.1%3A8085%2Fcallback&");
    assert_contains(text, "&resource=https%3A%2F%2Fh%2Fmcp%2F");  // the final slash stays
    assert_contains(text, "&resource=https%3A%2F%2Fsecond");
    assert_contains(text, "&scope=a%20b&");
    assert_contains(text, "&audience=x%20y");
    assert_null(strstr(text, "evil"));
    assert_null(strstr(text, "state=mine"));
    buf_release(&url);
}

// ---- the callback ---------------------------------------------------------------------------

static enum oauth_callback_kind judge(bool advertised, const char *format, struct err *err)
{
    struct arena arena = {0};
    struct buf query = {0};
    struct oauth_authorization a = attempt();
    struct oauth_callback callback;
    a.server.answers_iss = advertised;
    const char *mark = strstr(format, "STATE");
    buf_put(&query, format, mark ? (size_t)(mark - format) : strlen(format));
    if (mark) {
        buf_put_text(&query, a.state);
        buf_put_text(&query, mark + 5);
    }
    oauth_callback_parse(buf_span(&query), &arena, &callback);
    enum oauth_callback_kind kind = oauth_authorization_callback(&a, &callback, err);
    assert_true(kind != OAUTH_CALLBACK_CODE || callback.code);
    buf_release(&query);
    arena_release(&arena);
    return kind;
}

static void B2_B3_B4_B5_B6_callbacks_are_accepted_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        bool advertised;
        enum oauth_callback_kind want;
    } rows[] = {
        {"code=x&state=STATE", false, OAUTH_CALLBACK_CODE},
        {"?code=x&state=STATE", false, OAUTH_CALLBACK_CODE},
        {"code=4%2F0A%21%2A&state=STATE&session_state=z", false, OAUTH_CALLBACK_CODE},
        {"code=x", false, OAUTH_CALLBACK_STRANGE},
        {"code=x&state=", false, OAUTH_CALLBACK_STRANGE},
        {"code=x&state=STATEx", false, OAUTH_CALLBACK_STRANGE},
        {"error=access_denied&state=other", false, OAUTH_CALLBACK_STRANGE},
        {"error=access_denied", false, OAUTH_CALLBACK_STRANGE},
        {"code=x&code=y&state=STATE", false, OAUTH_CALLBACK_STRANGE},
        {"code=x&state=STATE&state=y", false, OAUTH_CALLBACK_STRANGE},
        {"code=x&state=STATE&iss=https://as&iss=https://as", false, OAUTH_CALLBACK_STRANGE},
        {"code=%zz&state=STATE", false, OAUTH_CALLBACK_STRANGE},
        {"code=%00&state=STATE", false, OAUTH_CALLBACK_STRANGE},
        {"state=STATE", false, OAUTH_CALLBACK_REJECTED},
        {"code=&state=STATE", false, OAUTH_CALLBACK_REJECTED},
        {"error=access_denied&state=STATE", false, OAUTH_CALLBACK_DENIED},
        {"error=server_error&error_description=x&state=STATE", false, OAUTH_CALLBACK_REFUSED},
        // iss advertised or not, and present or not
        {"code=x&state=STATE&iss=https%3A%2F%2Fas", true, OAUTH_CALLBACK_CODE},
        {"code=x&state=STATE", true, OAUTH_CALLBACK_REJECTED},
        {"code=x&state=STATE&iss=https%3A%2F%2Fas", false, OAUTH_CALLBACK_CODE},
        {"code=x&state=STATE&iss=https%3A%2F%2Fevil", false, OAUTH_CALLBACK_REJECTED},
        {"code=x&state=STATE&iss=https%3A%2F%2Fevil", true, OAUTH_CALLBACK_REJECTED},
        {"code=x&state=STATE&iss=https%3A%2F%2Fas%2F", true, OAUTH_CALLBACK_REJECTED},
        {"error=access_denied&state=STATE&iss=https%3A%2F%2Fevil", true, OAUTH_CALLBACK_REJECTED},
        {"error=access_denied&state=STATE", true, OAUTH_CALLBACK_REJECTED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        assert_row(judge(rows[i].advertised, rows[i].query, &err) == rows[i].want, rows[i].query);
    }
}

static void B3_an_error_from_another_issuer_is_not_shown(void **state)
{
    (void)state;
    struct err err = {0};
    judge(true, "error=call+this+number&state=STATE&iss=https%3A%2F%2Fevil", &err);
    assert_null(strstr(err.detail, "number"));
}

static void B5_N10_an_error_of_a_callback_is_shown_escaped_and_truncated(void **state)
{
    (void)state;
    struct err err = {0};
    struct buf query = {0};
    buf_put_text(&query, "state=STATE&error=x&error_description=a%1B%5B2Jb%0A");
    for (int i = 0; i < 3000; i++)
        buf_put_char(&query, 'z');
    assert_int_equal(judge(false, buf_text(&query), &err), OAUTH_CALLBACK_REFUSED);
    assert_contains(err.detail, "a\\x1b[2Jb\\x0a");
    assert_null(strchr(err.detail, '\x1b'));
    assert_true(strlen(err.detail) < 400);
    buf_release(&query);
}

static void B6_a_callback_with_a_long_value_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct buf query = {0};
    buf_put_text(&query, "state=STATE&code=");
    for (size_t i = 0; i <= OAUTH_VALUE_MAX; i++)
        buf_put_char(&query, 'z');
    assert_int_equal(judge(false, buf_text(&query), &err), OAUTH_CALLBACK_STRANGE);
    buf_release(&query);
}

static void B2_a_callback_with_a_repeated_parameter_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *query, *login, *code;
        bool malformed;
    } rows[] = {
        {"code=x&state=s", "s", "x", false},
        {"?state=s&code=a%20b", "s", "a b", false},
        {"state=s&other=1&other=2", "s", NULL, false},
        {"state=s&code=x&code=y", "s", "y", true},
        {"state=s&state=s", NULL, NULL, true},
        {"code=x", NULL, NULL, true},
        {"", NULL, NULL, true},
        {"state=s&code=%zz", NULL, NULL, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct oauth_callback callback;
        oauth_callback_parse(span_of(rows[i].query), &arena, &callback);
        assert_row(callback.malformed == rows[i].malformed, rows[i].query);
        assert_row(!callback.state == !rows[i].login, rows[i].query);
        assert_row(!callback.code == !rows[i].code, rows[i].query);
        if (rows[i].login)
            assert_string_equal(callback.state, rows[i].login);
        if (rows[i].code)
            assert_string_equal(callback.code, rows[i].code);
        arena_release(&arena);
    }
}

static void B7_an_attempt_accepts_only_one_callback(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct err err = {0};
    struct buf query = {0};
    struct oauth_authorization a = attempt();
    struct oauth_callback callback;
    buf_printf(&query, "code=x&state=%s", a.state);
    oauth_callback_parse(buf_span(&query), &arena, &callback);
    assert_int_equal(oauth_authorization_callback(&a, &callback, &err), OAUTH_CALLBACK_CODE);
    assert_int_equal(oauth_authorization_callback(&a, &callback, &err), OAUTH_CALLBACK_STRANGE);
    buf_release(&query);
    arena_release(&arena);
}

static void T1_a_code_exchange_sends_the_required_parameters(void **state)
{
    (void)state;
    struct oauth_authorization a = attempt();
    struct buf form = {0};
    oauth_authorization_put_exchange(&a, "a/b", &form);
    assert_contains(buf_text(&form),
                    "grant_type=authorization_code&code=a%2Fb&redirect_uri=http%3A%2F%2F127.0.0.1%3A8085");
    assert_contains(buf_text(&form), a.verifier);
    assert_contains(buf_text(&form), "&resource=https%3A%2F%2Fh%2Fmcp%2F");
    buf_release(&form);
}

// ---- tokens ---------------------------------------------------------------------------------

#define NOW 1000000

static enum oauth_verdict parse(int status, const char *type, const char *body, struct arena *arena,
                                struct oauth_tokens *out, struct err *err)
{
    struct oauth_answer answer = {status, span_of(type), span_of(body)};
    return oauth_tokens_parse(&answer, NOW, "asked", arena, out, err);
}

static void T5_T6_F12_answers_of_the_token_endpoint_are_classified(void **state)
{
    (void)state;
    static const char json[] = "application/json", form[] = "application/x-www-form-urlencoded; charset=utf-8";
    static const struct {
        int status;
        const char *type, *body;
        enum oauth_verdict want;
    } rows[] = {
        {200, json, "{\"access_token\":\"t\"}", OAUTH_VERDICT_GRANTED},
        {201, json, "{\"access_token\":\"t\",\"token_type\":\"BEARER\"}", OAUTH_VERDICT_GRANTED},
        {200, form, "access_token=t&token_type=bearer&scope=a%20b", OAUTH_VERDICT_GRANTED},
        {200, form, "{\"access_token\":\"t\"}", OAUTH_VERDICT_GRANTED},
        {200, "text/html", "{\"access_token\":\"t\"}", OAUTH_VERDICT_GRANTED},
        {200, json, "{\"access_token\":\"\"}", OAUTH_VERDICT_TRANSIENT},
        {200, json, "{\"access_token\":7}", OAUTH_VERDICT_TRANSIENT},
        {200, json, "{\"access_token\":\"a b\"}", OAUTH_VERDICT_TRANSIENT},
        {200, json, "{\"access_token\":\"a\\r\\nX: y\"}", OAUTH_VERDICT_TRANSIENT},
        {200, json, "{\"access_token\":\"t\",\"access_token\":\"u\"}", OAUTH_VERDICT_TRANSIENT},
        {200, json, "{\"access_token\":\"t\",\"token_type\":\"mac\"}", OAUTH_VERDICT_REFUSED},
        {200, json, "{\"error\":\"bad_refresh_token\"}", OAUTH_VERDICT_DEAD},
        {200, form, "error=bad_refresh_token", OAUTH_VERDICT_DEAD},
        {200, form, "access_token=t&access_token=u", OAUTH_VERDICT_TRANSIENT},
        {200, json, "<html>", OAUTH_VERDICT_TRANSIENT},
        {200, json, "", OAUTH_VERDICT_TRANSIENT},
        {400, json, "{\"error\":\"invalid_grant\"}", OAUTH_VERDICT_DEAD},
        {401, json, "{\"error\":\"invalid_client\"}", OAUTH_VERDICT_CLIENT},
        {400, json, "{\"error\":\"invalid_client\"}", OAUTH_VERDICT_CLIENT},
        {400, json, "{\"error\":\"invalid_client_metadata\"}", OAUTH_VERDICT_REFUSED},
        {400, json, "{\"error\":\"invalid_target\"}", OAUTH_VERDICT_RESOURCE},
        {400, json, "{\"error\":\"invalid_request\"}", OAUTH_VERDICT_VAGUE},
        {401, json, "{\"error\":\"invalid_request\"}", OAUTH_VERDICT_REFUSED},
        {503, json, "{\"error\":\"invalid_request\"}", OAUTH_VERDICT_TRANSIENT},
        {400, json, "{\"error\":\"invalid_refresh_token\"}", OAUTH_VERDICT_DEAD},
        {400, json, "{\"error\":\"unauthorized_client\"}", OAUTH_VERDICT_REFUSED},
        {403, json, "{\"error\":\"unauthorized_client\",\"error_description\":\"refresh_token is invalid\"}",
         OAUTH_VERDICT_DEAD},
        {302, json, "", OAUTH_VERDICT_TRANSIENT},
        {404, "text/html", "<html>", OAUTH_VERDICT_TRANSIENT},
        {429, json, "{\"error\":\"invalid_grant\"}", OAUTH_VERDICT_TRANSIENT},
        {500, json, "{\"error\":\"invalid_grant\"}", OAUTH_VERDICT_TRANSIENT},
        {503, "text/html", "busy", OAUTH_VERDICT_TRANSIENT},
        {400, json, "{\"error\":\"temporarily_unavailable\"}", OAUTH_VERDICT_TRANSIENT},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct oauth_tokens got;
        struct err err = {0};
        enum oauth_verdict verdict = parse(rows[i].status, rows[i].type, rows[i].body, &arena, &got, &err);
        assert_row(verdict == rows[i].want, rows[i].body);
        assert_row((verdict == OAUTH_VERDICT_GRANTED) == (got.access != NULL), rows[i].body);
        arena_release(&arena);
    }
}

static void T7_T8_T9_the_expiry_of_a_token_is_read_or_ignored_when_invalid(void **state)
{
    (void)state;
    static const struct {
        const char *member;
        int64_t expires;  // seconds after NOW; -1: unknown
    } rows[] = {
        {"", -1},
        {",\"expires_in\":3600", 3600},
        {",\"expires_in\":3599.7", 3599},
        {",\"expires_in\":\"5250\"", 5250},
        {",\"expires_in\":0", 0},
        {",\"expires_in\":\"0\"", 0},
        {",\"expires_in\":-1", -1},
        {",\"expires_in\":\"3600abc\"", -1},
        {",\"expires_in\":\"-5\"", -1},
        {",\"expires_in\":\"\"", -1},
        {",\"expires_in\":null", -1},
        {",\"expires_in\":true", -1},
        {",\"expires_in\":[1]", -1},
        {",\"expires_in\":1e300", OAUTH_LIFETIME_MAX},
        {",\"expires_in\":9223372036854775807", OAUTH_LIFETIME_MAX},
        {",\"expires_in\":\"999999999999999999\"", OAUTH_LIFETIME_MAX},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct arena arena = {0};
        struct buf body = {0};
        struct oauth_tokens got;
        struct err err = {0};
        buf_printf(&body, "{\"access_token\":\"t\"%s}", rows[i].member);
        assert_int_equal(parse(200, "application/json", buf_text(&body), &arena, &got, &err), OAUTH_VERDICT_GRANTED);
        assert_row(got.expires == (rows[i].expires < 0 ? 0 : NOW + rows[i].expires), rows[i].member);
        assert_int_equal(got.obtained, NOW);
        bool absent = !*rows[i].member || strstr(rows[i].member, ":\"\"") || strstr(rows[i].member, "null");
        assert_row(got.odd_lifetime == (rows[i].expires < 0 && !absent), rows[i].member);
        buf_release(&body);
        arena_release(&arena);
    }
}

static void T8_the_expiry_of_a_jwt_access_token_is_its_exp_claim(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct buf body = {0};
    struct oauth_tokens got;
    struct err err = {0};
    buf_put_text(&body, "{\"access_token\":\"");
    secret_encode(&body, SPAN("{\"alg\":\"ES256\"}"));
    buf_put_char(&body, '.');
    secret_encode(&body, SPAN("{\"exp\":1000600}"));
    buf_put_text(&body, ".AAAA\"}");
    assert_int_equal(parse(200, "application/json", buf_text(&body), &arena, &got, &err), OAUTH_VERDICT_GRANTED);
    assert_int_equal(got.expires, 1000600);
    buf_release(&body);
    arena_release(&arena);
}

static void T10_the_granted_scope_of_a_token_is_kept(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct oauth_tokens got;
    struct err err = {0};
    parse(200, "application/json", "{\"access_token\":\"t\"}", &arena, &got, &err);
    assert_string_equal(got.scope, "asked");
    parse(200, "application/json", "{\"access_token\":\"t\",\"scope\":\"less\"}", &arena, &got, &err);
    assert_string_equal(got.scope, "less");
    arena_release(&arena);
}

static void F1_a_token_is_refreshed_shortly_before_it_expires(void **state)
{
    (void)state;
    static const struct {
        int64_t lifetime, before;
    } rows[] = {{3600, 300}, {86400, 300}, {1200, 120}, {300, 30}, {120, 30}, {100, 20}, {60, 12}, {4, 0}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct oauth_tokens tokens = {.obtained = NOW, .expires = NOW + rows[i].lifetime};
        assert_int_equal(oauth_tokens_refresh_at(&tokens), NOW + rows[i].lifetime - rows[i].before);
    }
    assert_int_equal(oauth_tokens_refresh_at(&(struct oauth_tokens){.obtained = NOW}), 0);
}

static void F18_gateways_refresh_at_different_times(void **state)
{
    (void)state;
    struct oauth_tokens hour = {.obtained = 1000, .expires = 4600}, moment = {.obtained = 1000, .expires = 1001},
                        unknown = {.obtained = 1000};
    int64_t last = INT64_MAX;
    for (int random = 0; random < 256; random++) {
        int64_t after = oauth_tokens_refresh_in(&hour, 1000, (unsigned char)random);
        assert_true(after < last && after >= 2970000 && after <= 3300000);
        last = after;
    }
    assert_int_equal(oauth_tokens_refresh_in(&hour, 1000, 0), 3300000);
    assert_int_equal(last, 2970000);
    assert_int_equal(oauth_tokens_refresh_in(&hour, 4300, 0), -1);
    assert_int_equal(oauth_tokens_refresh_in(&moment, 1000, 0), -1);
    assert_int_equal(oauth_tokens_refresh_in(&unknown, 1000, 0), -1);
}

static void F9_members_that_a_refresh_response_omits_are_kept(void **state)
{
    (void)state;
    struct arena arena = {0};
    struct oauth_tokens old = {.refresh = "r", .scope = "s", .obtained = 100, .expires = 400};
    struct oauth_tokens fresh = {.access = "n", .obtained = 1000};
    oauth_tokens_keep(&fresh, &old, &arena);
    assert_string_equal(fresh.refresh, "r");
    assert_string_equal(fresh.scope, "s");
    assert_int_equal(fresh.expires, 1300);
    struct oauth_tokens full = {.access = "n", .refresh = "r2", .scope = "s2", .obtained = 1000, .expires = 1010};
    oauth_tokens_keep(&full, &old, &arena);
    assert_string_equal(full.refresh, "r2");
    assert_int_equal(full.expires, 1010);
    arena_release(&arena);
}

static void N10_a_secret_repeated_in_an_error_is_removed(void **state)
{
    (void)state;
    static const struct {
        const char *said, *shown;
    } rows[] = {
        {"bad 0123456789abcdef", "bad ****************"},
        {"0123456789abcdef and 0123456789abcdef", "**************** and ****************"},
        {"cut off: 0123456789", "cut off: **********"},
        {"0123456701234567", "****************"},
        {"a little of it: 0123456", "a little of it: 0123456"},
        {"nothing", "nothing"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err;
        (void)err_set(&err, ERR_DENIED, "%s", rows[i].said);
        oauth_problem_scrub(&err, "0123456789abcdef");
        assert_string_equal(err.detail, rows[i].shown);
        oauth_problem_scrub(&err, NULL);
        oauth_problem_scrub(&err, "not");
        assert_string_equal(err.detail, rows[i].shown);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(D1_challenges_are_parsed_or_refused),
        cmocka_unit_test(D1_several_challenge_headers_of_a_response_are_read),
        cmocka_unit_test(N1_D14_only_safe_urls_are_accepted),
        cmocka_unit_test(D3_D4_resource_metadata_are_looked_for_at_well_known_urls),
        cmocka_unit_test(D8_server_metadata_are_looked_for_at_well_known_urls),
        cmocka_unit_test(D8_a_metadata_url_that_would_be_too_long_is_left_out),
        cmocka_unit_test(D6_a_resource_covers_the_servers_below_its_url),
        cmocka_unit_test(D9_issuers_are_compared_by_bytes_except_for_one_trailing_slash),
        cmocka_unit_test(N5_an_authorization_server_must_be_in_an_allowed_domain),
        cmocka_unit_test(D6_N9_resource_metadata_are_parsed_or_refused),
        cmocka_unit_test(A7_an_empty_list_of_scopes_counts_as_absent),
        cmocka_unit_test(D9_D14_N1_server_metadata_are_parsed_or_refused),
        cmocka_unit_test(D10_the_issuer_is_spelled_as_in_the_metadata),
        cmocka_unit_test(D13_an_authorization_server_must_support_pkce),
        cmocka_unit_test(D11_default_endpoints_follow_from_the_server_url),
        cmocka_unit_test(A7_A8_A9_requested_scopes_are_chosen_in_order_of_their_sources),
        cmocka_unit_test(G4_a_registration_has_the_members_of_a_native_or_web_client),
        cmocka_unit_test(G2_the_client_document_is_complete),
        cmocka_unit_test(G5_a_registration_asks_for_the_simplest_method_that_the_server_supports),
        cmocka_unit_test(G6_the_method_in_the_registration_response_is_used),
        cmocka_unit_test(G7_G14_only_the_known_members_of_a_registration_response_are_kept),
        cmocka_unit_test(G8_a_renewal_names_the_client_and_omits_members_that_the_server_assigns),
        cmocka_unit_test(G8_G9_a_client_is_usable_until_its_secret_expires_or_its_redirect_changes),
        cmocka_unit_test(T1_T2_T3_a_client_authenticates_by_its_method),
        cmocka_unit_test(A2_A3_the_state_and_verifier_of_each_request_are_fresh),
        cmocka_unit_test(A2_the_pkce_challenge_matches_the_example_of_RFC_7636),
        cmocka_unit_test(A5_A6_A11_the_authorization_url_has_the_required_parameters_and_reserved_ones_cannot_be_set),
        cmocka_unit_test(B2_B3_B4_B5_B6_callbacks_are_accepted_or_refused),
        cmocka_unit_test(B3_an_error_from_another_issuer_is_not_shown),
        cmocka_unit_test(B5_N10_an_error_of_a_callback_is_shown_escaped_and_truncated),
        cmocka_unit_test(B6_a_callback_with_a_long_value_is_refused),
        cmocka_unit_test(B2_a_callback_with_a_repeated_parameter_is_refused),
        cmocka_unit_test(B7_an_attempt_accepts_only_one_callback),
        cmocka_unit_test(T1_a_code_exchange_sends_the_required_parameters),
        cmocka_unit_test(T5_T6_F12_answers_of_the_token_endpoint_are_classified),
        cmocka_unit_test(T7_T8_T9_the_expiry_of_a_token_is_read_or_ignored_when_invalid),
        cmocka_unit_test(T8_the_expiry_of_a_jwt_access_token_is_its_exp_claim),
        cmocka_unit_test(T10_the_granted_scope_of_a_token_is_kept),
        cmocka_unit_test(F1_a_token_is_refreshed_shortly_before_it_expires),
        cmocka_unit_test(F18_gateways_refresh_at_different_times),
        cmocka_unit_test(F9_members_that_a_refresh_response_omits_are_kept),
        cmocka_unit_test(N10_a_secret_repeated_in_an_error_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
