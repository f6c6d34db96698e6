// Tests the table of exchanged tokens: the key of an entry, its expiry, and the bound of the table.
#include "base/mem.h"
#include "exchanged_tokens_use.h"
#include "unit.h"
#include <stdio.h>

#define NOW 1700000000
#define SERVER "https://reports.example/mcp"
#define ISSUER "https://idp.example"

static const struct access_options options = {.client_id = "postern", .issuer = ISSUER};

static struct grant *grant_of(const char *tenant, const char *user, int64_t expires)
{
    struct grant_key key = {tenant, user, ISSUER, SERVER};
    struct grant_fields fields = {.client_id = mem_string("postern"),
                                  .scope_asked = mem_string("read"),
                                  .obtained_at = NOW,
                                  .expires_at = expires};
    secret_set(&fields.access_token, span_of("token"));
    return grant_new(&key, &fields);
}

static void put(struct exchanged_tokens *exchanged, const char *tenant, const char *user, int64_t expires)
{
    struct grant *grant = grant_of(tenant, user, expires);
    exchanged_tokens_put(exchanged, grant);
    grant_unref(grant);
}

static const struct grant *find(struct exchanged_tokens *exchanged, const char *tenant, const char *user, int64_t now)
{
    struct grant_key owner = {.tenant = tenant, .user = user};
    return exchanged_tokens_find(exchanged, &owner, SERVER, &options, now);
}

static void S1_each_user_has_a_separate_exchanged_token(void **state)
{
    (void)state;
    struct exchanged_tokens *exchanged = exchanged_tokens_new();
    put(exchanged, "acme", "jwt/ana", NOW + 60);
    put(exchanged, "globex", "jwt/bob", NOW + 60);
    assert_string_equal(find(exchanged, "acme", "jwt/ana", NOW)->user, "jwt/ana");
    assert_null(find(exchanged, "acme", "jwt/bob", NOW));
    assert_null(find(exchanged, "globex", "jwt/ana", NOW));
    assert_null(find(exchanged, "acme", "jwt/an", NOW));
    exchanged_tokens_free(exchanged);
}

static void S1_another_client_or_scope_has_a_separate_exchanged_token(void **state)
{
    (void)state;
    struct exchanged_tokens *exchanged = exchanged_tokens_new();
    struct grant_key owner = {.tenant = "acme", .user = "jwt/ana"};
    put(exchanged, "acme", "jwt/ana", NOW + 60);
    static const struct access_options others[] = {
        {.client_id = "another", .issuer = ISSUER},
        {.client_id = "postern", .issuer = ISSUER, .scope = "read write"},
        {.client_id = "postern", .issuer = "https://other.example"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_null(exchanged_tokens_find(exchanged, &owner, SERVER, &others[i], NOW));
    assert_null(exchanged_tokens_find(exchanged, &owner, "https://reports.example/other", &options, NOW));
    assert_non_null(exchanged_tokens_find(exchanged, &owner, SERVER, &options, NOW));
    exchanged_tokens_free(exchanged);
}

static void an_exchanged_token_expires(void **state)
{
    (void)state;
    struct exchanged_tokens *exchanged = exchanged_tokens_new();
    put(exchanged, "acme", "jwt/ana", NOW + 60);
    assert_non_null(find(exchanged, "acme", "jwt/ana", NOW + 59));
    assert_null(find(exchanged, "acme", "jwt/ana", NOW + 60));
    assert_null(find(exchanged, "acme", "jwt/ana", NOW));  // it was deleted
    exchanged_tokens_free(exchanged);
}

static void only_the_refused_exchanged_token_is_dropped(void **state)
{
    (void)state;
    struct exchanged_tokens *exchanged = exchanged_tokens_new();
    struct grant *old = grant_of("acme", "jwt/ana", NOW + 60), *fresh = grant_of("acme", "jwt/ana", NOW + 90);
    exchanged_tokens_put(exchanged, old);
    exchanged_tokens_put(exchanged, fresh);  // replaces `old`
    exchanged_tokens_drop(exchanged, old);
    assert_ptr_equal(find(exchanged, "acme", "jwt/ana", NOW), fresh);
    exchanged_tokens_drop(exchanged, fresh);
    assert_null(find(exchanged, "acme", "jwt/ana", NOW));
    grant_unref(old);
    grant_unref(fresh);
    exchanged_tokens_free(exchanged);
}

static void the_table_of_exchanged_tokens_is_bounded(void **state)
{
    (void)state;
    struct exchanged_tokens *exchanged = exchanged_tokens_new();
    char user[32];
    for (int i = 0; i < 4097; i++) {
        snprintf(user, sizeof user, "jwt/%d", i);
        put(exchanged, "acme", user, NOW + 60);
    }
    assert_null(find(exchanged, "acme", "jwt/0", NOW));
    assert_non_null(find(exchanged, "acme", "jwt/1", NOW));
    assert_non_null(find(exchanged, "acme", "jwt/4096", NOW));
    exchanged_tokens_free(exchanged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S1_each_user_has_a_separate_exchanged_token),
        cmocka_unit_test(S1_another_client_or_scope_has_a_separate_exchanged_token),
        cmocka_unit_test(an_exchanged_token_expires),
        cmocka_unit_test(only_the_refused_exchanged_token_is_dropped),
        cmocka_unit_test(the_table_of_exchanged_tokens_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
