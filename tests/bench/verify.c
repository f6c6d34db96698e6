// Measures the verification of a JWT, RS256 and ES256, with and without the cache; prints a line of JSON for each.
//
// The keys were generated for this program; their private parts were discarded.
#include "auth/caller/identity.h"
#include "auth/jose/jwt.h"
#include "jwt_cache.h"
#include "rounds.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 9, NEW = 200, CACHED = 20000 };

#define NOW 1800000000
#define ISSUER "https://issuer.example"
#define AUDIENCE "https://gateway.example/mcp"

// clang-format off
static const char key_set[] =
    "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"qxUxhQcFyJ9HjjKn8fmOQZ_eC6VNeSfK5fxIlSMQjdRb79mp57tABDdJF4H9CzgVQogMfeWBg"
    "USyH219CELfiE2OqCsjR6Wa_tK8kXXmZebDGm8QG6wYNuRcS5KAXJC7E1u7H0VTnBm9iRrx9zAvQF2BmsYYqNcftMuJB1hHgeodq"
    "KOgs7Ok5ErLYzywKZUfJ7cwcDJFyWESQv9dGZMP42nvteb-FM-RMVLxNi2rFBFJy-4dYMu9UQt3_NFV98zpY053XMj-TJ87JhYtn"
    "7AAeS8uQ6tSYJerOab1tiBVvgB1BDxBTuknUq3u9EqX0_PZIscyIFV1FIp5eRsPQW8ODQ\",\"e\":\"AQAB\",\"kid\":\"RS256\",\"alg"
    "\":\"RS256\",\"use\":\"sig\"},{\"kty\":\"EC\",\"x\":\"Eq2D7vDtS9YSreMnCwzoYro-EX70c_yM3V4_6CSxIvE\",\"y\":\"PJvINt6qwm"
    "Q8vavtv09VdJNetffLbIGRPw1_k_3iOQw\",\"crv\":\"P-256\",\"kid\":\"ES256\",\"alg\":\"ES256\",\"use\":\"sig\"}]}";

static const struct vector {
    const char *algorithm, *token;
} vectors[] = {
    {"RS256",
     "eyJhbGciOiJSUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6IlJTMjU2In0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwi"
     "YXVkIjoiaHR0cHM6Ly9nYXRld2F5LmV4YW1wbGUvbWNwIiwic3ViIjoiYmVuY2giLCJpYXQiOjE3MDAwMDAwMDAsImV4cCI6NDEwMjQ0"
     "NDgwMCwianRpIjoiNGY3YzJhIiwic2NvcGUiOiJtY3A6dG9vbHMgbWNwOnJlc291cmNlcyIsInJvbGVzIjpbImVuZyIsIm9uLWNhbGwi"
     "XSwidGVuYW50IjoiYWNtZSJ9.ZQyJeqkxSuTUmD74zjMiAOazv5663vCMlgJseB79ggcmGHGeA8CiwtEZ_J6HYaNI-mLGCqpxbeIS7lf"
     "A6hVfLfmhGucC9q8CZh92t7-JwmenhxC9nrjwUzALYj8ukDx0dfGBvMZIxMw1PYpTgcePptLlpFBkAjNFpeR1V9eqgahJJViLpVt5AYY"
     "uOUp8nWfb3rTMSmtwEMPvtsC4QvpreIgxVeXKbVSQilY0HrFIDgw0gGIfP0vK3wIBPMe6fmWGvk8-DO-Aun-RMASwNG4h9UhSOLX0S8l"
     "25MZuA9PDCkotvwmmHOd6PV4DAWi17qjCU6vYJHSONkX8CqiMBGXVlg"},
    {"ES256",
     "eyJhbGciOiJFUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6IkVTMjU2In0.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwi"
     "YXVkIjoiaHR0cHM6Ly9nYXRld2F5LmV4YW1wbGUvbWNwIiwic3ViIjoiYmVuY2giLCJpYXQiOjE3MDAwMDAwMDAsImV4cCI6NDEwMjQ0"
     "NDgwMCwianRpIjoiNGY3YzJhIiwic2NvcGUiOiJtY3A6dG9vbHMgbWNwOnJlc291cmNlcyIsInJvbGVzIjpbImVuZyIsIm9uLWNhbGwi"
     "XSwidGVuYW50IjoiYWNtZSJ9.aT_QwGDIlwZ7tnuVwYc7mTX2q1DdnREdYgMIcuLfyKz872AZ-bDNF_4tYGJrtf1MkOaEt2y7oFFMtMy"
     "Kylqmyg"},
};
// clang-format on

static bool verify(const struct jwks *keys, const char *token, struct jwt_cache *cache)
{
    static char audience[] = AUDIENCE;
    char *const audiences[] = {audience, NULL};
    struct jwt_rules rules = {.issuer = ISSUER, .audiences = audiences, .algorithms = JWT_ALGORITHMS_DEFAULT};
    struct jwt_claims claims;
    struct err err;
    if (jwt_verify(&rules, keys, span_of(token), NOW, &claims, &err) != JWT_ACCEPTED)
        return false;
    struct identity *identity = identity_new(IDENTITY_JWT, "acme", "jwt", claims.subject);
    identity->expires = claims.expires;
    jwt_cache_put(cache, span_of(token), identity);
    identity_unref(identity);
    jwt_claims_release(&claims);
    return true;
}

// The median over the rounds, in nanoseconds a token.
static int64_t measure(const struct jwks *keys, const char *token, bool cached, bool *ok)
{
    int64_t rounds[ROUNDS];
    int count = cached ? CACHED : NEW;
    struct jwt_cache *cache = jwt_cache_new(64);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = now_ns();
        for (int i = 0; i < count; i++)
            *ok = ((cached && jwt_cache_find(cache, span_of(token), NOW)) || verify(keys, token, cache)) && *ok;
        rounds[round] = (now_ns() - start) / count;
    }
    jwt_cache_free(cache);
    return percentile(rounds, ROUNDS, 50);
}

int main(void)
{
    struct err err;
    bool ok = true;
    struct jwks *keys = jwks_parse(span_of(key_set), &err);
    if (!keys || jwks_count(keys) != sizeof vectors / sizeof *vectors)
        return 1;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        long long anew = measure(keys, vectors[i].token, false, &ok),
                  cached = measure(keys, vectors[i].token, true, &ok);
        printf("{\"algorithm\":\"%s\",\"new_ns\":%lld,\"cached_ns\":%lld}\n", vectors[i].algorithm, anew, cached);
    }
    jwks_free(keys);
    return ok ? 0 : 1;
}
