// Fuzzes the answer of an identity provider: a token is accepted only if the answer names the type ID-JAG, and the token
// contains no white space.
#include "auth/oauth/oauth.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct arena arena = {0};
    struct oauth_answer answer = {len % 7 ? 200 : 400, span_of("application/json"), {(const char *)bytes, len}};
    struct err err = {0};
    const char *token = oauth_tokens_parse_jag(&answer, &arena, &err);
    if (token) {
        REQUIRE(answer.status == 200 && *token && !strpbrk(token, " \t\r\n"));
        REQUIRE(memmem(bytes, len, "id-jag", 6) || memchr(bytes, '\\', len));
    } else {
        REQUIRE(err.code);
        for (const char *at = err.detail; *at; at++)
            REQUIRE((unsigned char)*at >= ' ' && *at != 0x7f);
    }
    arena_release(&arena);
    return 0;
}
