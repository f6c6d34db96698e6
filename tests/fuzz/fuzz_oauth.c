// Fuzzes the OAuth input that the gateway does not trust: challenges, URLs, metadata, registrations, callbacks, token answers.
#include "auth/oauth/oauth.h"
#include "fuzz.h"

static void challenge(struct span input, struct arena *arena)
{
    struct oauth_challenge got = {0};
    oauth_challenge_parse(input, arena, &got);
    REQUIRE(got.bearer || (!got.scope && !got.resource_metadata));
    REQUIRE(!got.scope || strlen(got.scope) <= OAUTH_VALUE_MAX);
}

static void url(const char *text, struct arena *arena)
{
    struct oauth_url parts;
    const char *places[OAUTH_URLS_MAX];
    if (!oauth_url_parse(text, &parts)) {
        REQUIRE(!oauth_url_secure(text) && !oauth_issuer_matches(text, text));
        return;
    }
    REQUIRE(parts.port && parts.host.len && oauth_issuer_matches(text, text));
    REQUIRE(oauth_resource_covers(text, text));
    size_t count = oauth_resource_urls(text, arena, places);
    for (size_t i = 0; i < count; i++)
        REQUIRE(oauth_url_same_origin(text, places[i]));
    count = oauth_server_urls(text, arena, places);
    for (size_t i = 0; i < count; i++)
        REQUIRE(oauth_url_same_origin(text, places[i]));
}

static void documents(struct span input, struct arena *arena)
{
    struct err err = {0};
    struct oauth_resource resource;
    struct oauth_server server;
    struct oauth_client client;
    struct oauth_tokens tokens;
    struct oauth_registration wish = {.redirect_uri = "http://127.0.0.1/callback"};
    struct oauth_answer answer = {200, span_of("application/x-www-form-urlencoded"), input};
    if (oauth_resource_parse(input, "https://h/mcp", arena, &resource, &err))
        REQUIRE(resource.server_count && oauth_resource_covers(resource.resource, "https://h/mcp"));
    if (oauth_server_parse(input, "https://as", arena, &server, &err))
        REQUIRE(oauth_url_secure(server.token_endpoint));
    if (oauth_registration_parse(input, &wish, arena, &client, &err))
        REQUIRE(client.id && (client.method == OAUTH_METHOD_NONE || client.secret));
    if (oauth_tokens_parse(&answer, 1000, NULL, arena, &tokens, &err) == OAUTH_VERDICT_GRANTED)
        REQUIRE(tokens.access && !strpbrk(tokens.access, "\r\n") && tokens.expires >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena arena = {0};
    struct span input = {(const char *)bytes, len};
    struct oauth_authorization attempt = {.server = {.issuer = "https://as"}, .state = "s"};
    struct err err;
    struct oauth_callback callback;
    challenge(input, &arena);
    url(arena_copy(&arena, input), &arena);
    documents(input, &arena);
    oauth_callback_parse(input, &arena, &callback);
    if (oauth_authorization_callback(&attempt, &callback, &err) == OAUTH_CALLBACK_CODE)
        REQUIRE(callback.code && *callback.code && strcmp(callback.state, "s") == 0);
    arena_release(&arena);
    return 0;
}
