// Tests the use of verified tokens: the claims that give roles, scopes and the tenant, the cache of identities, and when an
// unknown key causes a fetch.
#include "claims.h"
#include "jwks_misses.h"
#include "jwt_cache.h"
#include "unit.h"

// ---- J9: the cache --------------------------------------------------------------------------

static struct identity *somebody(const char *name, int64_t expires)
{
    struct identity *identity = identity_new(IDENTITY_JWT, "", "idp", name);
    identity->expires = expires;
    return identity;
}

static void put_cached(struct jwt_cache *cache, const char *token, int64_t expires)
{
    struct identity *identity = somebody(token, expires);
    jwt_cache_put(cache, span_of(token), identity);
    identity_unref(identity);
}

static bool has_cached(struct jwt_cache *cache, const char *token, int64_t now)
{
    const struct identity *found = jwt_cache_find(cache, span_of(token), now);
    assert_true(!found || strcmp(found->subject, token) == 0);
    return found;
}

static void J9_the_cache_is_bounded_and_checks_expiry_again(void **state)
{
    (void)state;
    struct jwt_cache *cache = jwt_cache_new(3);
    put_cached(cache, "a", 100);
    put_cached(cache, "b", 100);
    put_cached(cache, "c", 100);
    assert_true(has_cached(cache, "a", 99));
    put_cached(cache, "d", 100);  // evicts b, the least recently used
    assert_false(has_cached(cache, "b", 99));
    assert_true(has_cached(cache, "a", 99) && has_cached(cache, "c", 99) && has_cached(cache, "d", 99));
    put_cached(cache, "d", 200);  // replaces the entry and evicts no other
    assert_true(has_cached(cache, "a", 99) && has_cached(cache, "c", 99) && has_cached(cache, "d", 150));
    assert_false(has_cached(cache, "a", 100));
    assert_false(has_cached(cache, "a", 99));  // it was deleted
    put_cached(cache, "never", 0);
    assert_false(has_cached(cache, "never", -5));
    assert_false(has_cached(cache, "", 0));
    jwt_cache_clear(cache);
    assert_false(has_cached(cache, "c", 0) || has_cached(cache, "d", 0));
    put_cached(cache, "e", 100);
    assert_true(has_cached(cache, "e", 1));
    jwt_cache_free(cache);
    cache = jwt_cache_new(0);
    put_cached(cache, "a", 100);
    assert_false(has_cached(cache, "a", 1));
    jwt_cache_free(cache);
    jwt_cache_free(NULL);
}

static void J9_an_identity_outlives_its_entry_in_the_cache(void **state)
{
    (void)state;
    struct jwt_cache *cache = jwt_cache_new(1);
    put_cached(cache, "a", 100);
    struct identity *mine = identity_ref(jwt_cache_find(cache, SPAN("a"), 1));
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        put_cached(cache, name, 100);
        assert_true(has_cached(cache, name, 1));
    }
    assert_string_equal(mine->subject, "a");
    identity_unref(mine);
    jwt_cache_free(cache);
}

// ---- J11: when keys are fetched again -------------------------------------------------------

static void J11_unknown_kids_cause_one_fetch_a_minute_and_a_repeated_kid_one_in_five(void **state)
{
    (void)state;
    struct jwks_misses misses = {0};
    int64_t now = 1000000, minute = 60000;
    assert_true(jwks_misses_may_fetch(&misses, SPAN("a"), now));
    assert_false(jwks_misses_may_fetch(&misses, SPAN("a"), now));
    assert_false(jwks_misses_may_fetch(&misses, SPAN("b"), now + minute - 1));
    assert_false(jwks_misses_may_fetch(&misses, SPAN("a"), now + minute));  // the last fetch did not bring it
    assert_true(jwks_misses_may_fetch(&misses, SPAN("b"), now + minute));
    assert_false(jwks_misses_may_fetch(&misses, SPAN("a"), now + 5 * minute - 1));
    assert_true(jwks_misses_may_fetch(&misses, SPAN("a"), now + 5 * minute));
    for (int i = 0; i < 3 * JWKS_MISSES_MAX; i++) {  // many different kids also cause one fetch a minute at most
        char kid[16];
        snprintf(kid, sizeof kid, "k%d", i);
        now += minute;
        (void)jwks_misses_may_fetch(&misses, span_of(kid), now);
        assert_false(jwks_misses_may_fetch(&misses, SPAN("another"), now));
    }
}

// ---- J14 to J16: the meaning of the claims --------------------------------------------------

static struct jwt_claims claims_of(const char *text)
{
    struct jwt_claims claims = {.tree = json_loads(text, JSON_DECODE_INT_AS_REAL, NULL)};
    assert_non_null(claims.tree);
    return claims;
}

static void J8_claims_are_found_by_JSON_pointer(void **state)
{
    (void)state;
    struct jwt_claims claims = claims_of("{\"sub\":\"alice\",\"a~/b\":{\"c\":[1]}}");
    struct err err = {0};
    assert_true(json_is_array(claims_find(&claims, "/a~0~1b/c")));
    assert_null(claims_find(&claims, "/a~0~1b/c/0"));
    assert_null(claims_find(&claims, "/a~/b"));
    assert_null(claims_find(&claims, "sub"));
    assert_ptr_equal(claims_find(&claims, ""), claims.tree);
    jwt_claims_release(&claims);
    static const char *const pointers[] = {"", "a", "/~", "/a~2", "/~/x"};
    assert_true(claims_pointer_check("/realm_access/roles", &err));
    assert_true(claims_pointer_check("/https:~1~1x.example~1roles", &err));
    assert_true(claims_pointer_check("/", &err));
    for (size_t i = 0; i < COUNT(pointers); i++)
        assert_false(claims_pointer_check(pointers[i], &err));
}

static struct option_pair pairs[] = {
    {"mcp.read", "reader"}, {"mcp:write", "writer"}, {"admins", "admin"}, {"readers", "reader"}};
static char *const pointers[] = {"/realm_access/roles", "/groups", "/https:~1~1x.example~1roles", NULL};

// Writes the roles, separated by spaces, or "!" for an error.
static void map_roles(const char *payload, struct buf *out, bool *overage)
{
    const struct claims_role_rules rules = {.claims = pointers, .values = {.at = pairs, .count = COUNT(pairs)}};
    struct jwt_claims claims = claims_of(payload);
    struct identity *identity = somebody("alice", 0);
    struct err err = {0};
    buf_clear(out);
    if (!claims_add_roles(&claims, &rules, identity, &err)) {
        assert_int_equal(err.code, ERR_UNAUTHENTICATED);
        buf_put_char(out, '!');
    } else {
        for (size_t i = 0; i < identity->role_count; i++)
            buf_printf(out, "%s%s", i ? " " : "", identity->roles[i]);
    }
    *overage = identity->roles_left_out;
    identity_unref(identity);
    jwt_claims_release(&claims);
}

static void J14_roles_come_only_from_the_configured_map(void **state)
{
    (void)state;
    static const struct {
        const char *payload, *roles;
    } rows[] = {
        {"{}", ""},
        {"{\"scope\":\"mcp.read mcp:write\"}", "reader writer"},
        {"{\"scope\":\"  mcp:write   openid \"}", "writer"},
        {"{\"scope\":\"\"}", ""},
        {"{\"scope\":\"mcp.read\",\"scp\":\"mcp.read\",\"groups\":[\"readers\"]}", "reader"},
        {"{\"scp\":\"mcp.read mcp:write\"}", "reader writer"},
        {"{\"scp\":[\"mcp.read\",\"mcp:write\"]}", "reader writer"},
        {"{\"scp\":[\"mcp.read mcp:write\"]}", ""},
        {"{\"realm_access\":{\"roles\":[\"admins\",\"offline\"]}}", "admin"},
        {"{\"groups\":\"admins\"}", "admin"},
        {"{\"groups\":\"admins readers\"}", ""},
        {"{\"https://x.example/roles\":[\"admins\"]}", "admin"},
        {"{\"roles\":[\"admins\"],\"realm_access\":[\"admins\"]}", ""},
        {"{\"groups\":[\"admin\",\"reader\",\"Admins\",\"admins \"]}", ""},
        {"{\"groups\":[\"\",\"a\\nb\",\"\\u007f\"]}", ""},
        {"{\"groups\":[\"role:idp/x\"]}", ""},
        {"{\"groups\":[]}", ""},
        // A claim of the wrong type is an error; a caller with fewer roles could escape a deny.
        {"{\"scope\":7}", "!"},
        {"{\"scope\":{\"mcp.read\":true}}", "!"},
        {"{\"scp\":null}", "!"},
        {"{\"groups\":[\"admins\",1]}", "!"},
        {"{\"groups\":{\"admins\":true}}", "!"},
        {"{\"realm_access\":{\"roles\":true}}", "!"},
    };
    struct buf got = {0};
    bool overage;
    for (size_t i = 0; i < COUNT(rows); i++) {
        map_roles(rows[i].payload, &got, &overage);
        assert_span(buf_span(&got), span_of(rows[i].roles), rows[i].payload);
        assert_false(overage);
    }
    buf_release(&got);
}

static void J14_group_overage_counts_as_missing(void **state)
{
    (void)state;
    static const struct {
        const char *payload, *roles;
        bool overage;
    } rows[] = {
        {"{\"scp\":\"mcp.read\",\"_claim_names\":{\"groups\":\"src1\"},\"_claim_sources\":{\"src1\":{}}}", "reader",
         true},
        {"{\"groups\":[\"admins\"],\"_claim_names\":{\"groups\":\"src1\"}}", "", true},
        {"{\"realm_access\":{\"roles\":[\"admins\"]},\"_claim_names\":{\"realm_access\":\"src1\"}}", "", true},
        {"{\"scope\":\"mcp.read\",\"_claim_names\":{\"scope\":\"s\"}}", "", true},
        {"{\"groups\":[\"admins\"],\"_claim_names\":{\"address\":\"src1\"}}", "admin", false},
        {"{\"groups\":[\"admins\"],\"_claim_names\":\"groups\"}", "admin", false},
    };
    struct buf got = {0};
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool overage;
        map_roles(rows[i].payload, &got, &overage);
        assert_span(buf_span(&got), span_of(rows[i].roles), rows[i].payload);
        assert_row(overage == rows[i].overage, rows[i].payload);
    }
    buf_release(&got);
}

static void J14_too_many_claim_values_are_an_error(void **state)
{
    (void)state;
    struct buf payload = {0}, got = {0};
    for (int count = CLAIMS_VALUES_MAX; count <= CLAIMS_VALUES_MAX + 1; count++) {
        bool overage;
        buf_clear(&payload);
        buf_put_text(&payload, "{\"groups\":[");
        for (int i = 1; i < count; i++)
            buf_printf(&payload, "\"g%d\",", i);
        buf_put_text(&payload, "\"admins\"]}");
        map_roles(buf_text(&payload), &got, &overage);
        assert_span(buf_span(&got), span_of(count == CLAIMS_VALUES_MAX ? "admin" : "!"), "bound");
    }
    buf_release(&payload);
    buf_release(&got);
}

static void J15_a_token_must_have_all_required_scopes(void **state)
{
    (void)state;
    static char *const need[] = {"mcp.read", "mcp:write", NULL}, *const nothing[] = {NULL};
    static const struct {
        const char *payload;
        bool want;
    } rows[] = {
        {"{\"scope\":\"mcp.read mcp:write\"}", true},
        {"{\"scope\":\"mcp:write x mcp.read\"}", true},
        {"{\"scp\":[\"mcp:write\",\"mcp.read\"]}", true},
        {"{\"scope\":\"mcp.read\",\"scp\":\"mcp:write\"}", true},
        {"{\"scope\":\"mcp.read\"}", false},
        {"{\"scope\":\"mcp.reader mcp:writer\"}", false},
        {"{\"scope\":\"MCP.READ mcp:write\"}", false},
        {"{\"scope\":7}", false},
        {"{\"scp\":[\"mcp:write\",\"mcp.read\",1]}", false},
        {"{}", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct jwt_claims claims = claims_of(rows[i].payload);
        assert_row(claims_have_scopes(&claims, need) == rows[i].want, rows[i].payload);
        assert_true(claims_have_scopes(&claims, NULL) && claims_have_scopes(&claims, nothing));
        jwt_claims_release(&claims);
    }
}

static void J16_the_tenant_is_fixed_unless_a_claim_is_mapped(void **state)
{
    (void)state;
    struct err err = {0};
    struct jwt_claims claims =
        claims_of("{\"tenant\":\"evil\",\"org\":{\"id\":\"acme\"},\"n\":7,\"e\":\"\",\"c\":\"a\\n\"}");
    assert_string_equal(claims_tenant(&claims, NULL, "fixed", &err), "fixed");
    assert_string_equal(claims_tenant(&claims, "/org/id", "fixed", &err), "acme");
    static const char *const wrong[] = {"/org", "/none", "/n", "/e", "/c", "/org/id/x"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        err = (struct err){0};
        assert_null(claims_tenant(&claims, wrong[i], "fixed", &err));
        assert_int_equal(err.code, ERR_UNAUTHENTICATED);
    }
    jwt_claims_release(&claims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J8_claims_are_found_by_JSON_pointer),
        cmocka_unit_test(J9_the_cache_is_bounded_and_checks_expiry_again),
        cmocka_unit_test(J9_an_identity_outlives_its_entry_in_the_cache),
        cmocka_unit_test(J11_unknown_kids_cause_one_fetch_a_minute_and_a_repeated_kid_one_in_five),
        cmocka_unit_test(J14_roles_come_only_from_the_configured_map),
        cmocka_unit_test(J14_group_overage_counts_as_missing),
        cmocka_unit_test(J14_too_many_claim_values_are_an_error),
        cmocka_unit_test(J15_a_token_must_have_all_required_scopes),
        cmocka_unit_test(J16_the_tenant_is_fixed_unless_a_claim_is_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
