// Fuzzes tokens and key sets: nothing crashes, and a token is accepted only if the key of this run signed it.
//
// The first byte selects the meaning of the rest: h a header and p a payload that we sign, k a key set, else a whole token.
#include "../../auth/caller/claims.h"
#include "../../auth/caller/jwt_cache.h"
#include "auth/caller/identity.h"
#include "auth/jose/jwt.h"
#include "base/option.h"
#include "base/secret.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#define NOW 1700000000
#define HEADER "{\"alg\":\"EdDSA\",\"kid\":\"k\",\"typ\":\"at+jwt\"}"
#define PAYLOAD "{\"iss\":\"i\",\"aud\":\"a\",\"exp\":1700000060,\"sub\":\"s\",\"scope\":\"x y\"}"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static EVP_PKEY *key;
static struct jwks *keys;
static char *const audiences[] = {"a", "b", NULL};
static const struct jwt_rules rules = {.issuer = "i", .audiences = audiences, .algorithms = 0x3FF, .skew = 30};

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_jwt: %s\n", what);
    abort();
}

static void make_key(void)
{
    struct buf text = {0};
    struct err err;
    unsigned char raw[32];
    size_t len = sizeof raw;
    key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    require(key && EVP_PKEY_get_raw_public_key(key, raw, &len) == 1, "no key");
    buf_put_text(&text, "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"k\",\"x\":\"");
    secret_encode(&text, span_make((const char *)raw, len));
    buf_put_text(&text, "\"}]}");
    keys = jwks_parse(buf_span(&text), &err);
    require(keys && jwks_count(keys) == 1, "no key set");
    buf_release(&text);
}

// Returns the offset of the signature.
static size_t put_token(struct buf *out, struct span header, struct span payload)
{
    unsigned char signature[64];
    size_t len = sizeof signature;
    secret_encode(out, header);
    buf_put_char(out, '.');
    secret_encode(out, payload);
    EVP_MD_CTX *run = EVP_MD_CTX_new();
    require(EVP_DigestSignInit(run, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestSign(run, signature, &len, (const unsigned char *)out->at, out->len) == 1,
            "no signature");
    EVP_MD_CTX_free(run);
    buf_put_char(out, '.');
    size_t at = out->len;
    secret_encode(out, span_make((const char *)signature, len));
    return at;
}

static void read_claims(const struct jwt_claims *claims, struct span token)
{
    static char *const pointers[] = {"/realm_access/roles", "/groups", "/a~1b", NULL}, *const scopes[] = {"x", NULL};
    static struct option_pair pairs[] = {{"x", "reader"}};
    const struct claims_role_rules mapping = {.claims = pointers, .values = {pairs, 1}};
    struct identity *identity = identity_new(IDENTITY_JWT, "", "idp", claims->subject ? claims->subject : "");
    struct jwt_cache *cache = jwt_cache_new(2);
    struct err err;
    (void)!claims_add_roles(claims, &mapping, identity, &err);
    (void)claims_have_scopes(claims, scopes);
    (void)!claims_tenant(claims, "/org/id", "t", &err);
    require(claims->expires > NOW, "accepted although it expired");
    identity->expires = claims->expires;
    jwt_cache_put(cache, token, identity);
    require(jwt_cache_find(cache, token, NOW) && !jwt_cache_find(cache, token, claims->expires), "cache");
    jwt_cache_free(cache);
    identity_unref(identity);
}

static enum jwt_outcome judge(const struct jwks *with, struct span token)
{
    struct jwt_claims claims;
    struct err err = {0};
    enum jwt_outcome outcome = jwt_verify(&rules, with, token, NOW, &claims, &err);
    require((outcome == JWT_ACCEPTED) == (err.code == ERR_NONE), "outcome and error differ");
    if (outcome == JWT_ACCEPTED)
        read_claims(&claims, token);
    jwt_claims_release(&claims);
    return outcome;
}

static void try_signed(struct span header, struct span payload)
{
    struct buf token = {0};
    size_t at = put_token(&token, header, payload);
    if (judge(keys, buf_span(&token)) == JWT_ACCEPTED)
        for (size_t i = 0; i < token.len; i += i < at ? 13 : 5) {
            char was = token.at[i];
            token.at[i] = was == 'A' ? 'B' : 'A';
            require(judge(keys, buf_span(&token)) != JWT_ACCEPTED, "accepted although it was tampered with");
            token.at[i] = was;
        }
    buf_release(&token);
}

static void try_set(struct span text)
{
    struct err err;
    struct jwks *parsed = jwks_parse(text, &err);
    if (!parsed)
        return;
    struct buf token = {0};
    (void)put_token(&token, span_of(HEADER), span_of(PAYLOAD));
    require(judge(keys, buf_span(&token)) == JWT_ACCEPTED, "a good token was refused");
    require(judge(parsed, buf_span(&token)) != JWT_ACCEPTED, "accepted with a key that did not sign it");
    require(jwks_count(parsed) <= JWKS_KEYS_MAX, "too many keys");
    buf_release(&token);
    jwks_free(parsed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (!key)
        make_key();
    if (len == 0)
        return 0;
    struct span rest = span_make((const char *)bytes + 1, len - 1);
    switch (bytes[0]) {
    case 'h': try_signed(rest, span_of(PAYLOAD)); break;
    case 'p': try_signed(span_of(HEADER), rest); break;
    case 'k': try_set(rest); break;
    default: require(judge(keys, rest) != JWT_ACCEPTED, "accepted although we did not sign it");
    }
    return 0;
}
