// Owns the self-test of token verification: valid and forged tokens, generated and verified at every start.
#include "auth/jose/jwt.h"
#include "base/secret.h"
#include "jwk.h"
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

#define TEST_NOW 1700000000
#define CLAIMS(rest) "{\"iss\":\"self\",\"sub\":\"test\"," rest "}"
#define GOOD CLAIMS("\"aud\":\"here\",\"exp\":1700000060")

enum test_key { TEST_RSA, TEST_P256, TEST_P384, TEST_ED25519, TEST_KEYS };
enum test_flaw { AS_IT_IS, UNSIGNED, SIGNED_WITH_PEM, CUT_SHORT, PAYLOAD_DROPPED, SEGMENT_ADDED };

// clang-format off
static const struct vector {
    const char *name, *header, *payload;
    enum test_key key;
    const char *signed_as;
    enum test_flaw flaw;
    enum jwt_outcome want;
} vectors[] = {
    {"RS256",          "{\"alg\":\"RS256\",\"kid\":\"0\"}", GOOD, TEST_RSA,     "RS256", AS_IT_IS, JWT_ACCEPTED},
    {"PS256",          "{\"alg\":\"PS256\",\"kid\":\"0\"}", GOOD, TEST_RSA,     "PS256", AS_IT_IS, JWT_ACCEPTED},
    {"ES256",          "{\"alg\":\"ES256\",\"kid\":\"1\"}", GOOD, TEST_P256,    "ES256", AS_IT_IS, JWT_ACCEPTED},
    {"EdDSA",          "{\"alg\":\"EdDSA\",\"kid\":\"3\"}", GOOD, TEST_ED25519, "EdDSA", AS_IT_IS, JWT_ACCEPTED},
    {"alg none",       "{\"alg\":\"none\",\"kid\":\"0\"}",  GOOD, TEST_RSA,     "RS256", UNSIGNED, JWT_REJECTED},
    {"alg none, signed", "{\"alg\":\"none\",\"kid\":\"0\"}", GOOD, TEST_RSA,    "RS256", AS_IT_IS, JWT_REJECTED},
    {"alg None",       "{\"alg\":\"None\",\"kid\":\"0\"}",  GOOD, TEST_RSA,     "RS256", AS_IT_IS, JWT_REJECTED},
    {"HS256 with the PEM", "{\"alg\":\"HS256\",\"kid\":\"0\"}", GOOD, TEST_RSA, "RS256", SIGNED_WITH_PEM, JWT_REJECTED},
    {"unknown kid",    "{\"alg\":\"RS256\",\"kid\":\"9\"}", GOOD, TEST_RSA,     "RS256", AS_IT_IS, JWT_UNKNOWN_KEY},
    {"another's kid",  "{\"alg\":\"ES256\",\"kid\":\"0\"}", GOOD, TEST_P256,    "ES256", AS_IT_IS, JWT_REJECTED},
    {"swapped curve",  "{\"alg\":\"ES256\",\"kid\":\"2\"}", GOOD, TEST_P384,    "ES384", AS_IT_IS, JWT_REJECTED},
    {"swapped key",    "{\"alg\":\"ES384\",\"kid\":\"2\"}", GOOD, TEST_P256,    "ES256", AS_IT_IS, JWT_REJECTED},
    {"swapped padding", "{\"alg\":\"PS256\",\"kid\":\"0\"}", GOOD, TEST_RSA,    "RS256", AS_IT_IS, JWT_REJECTED},
    {"truncated RS256", "{\"alg\":\"RS256\",\"kid\":\"0\"}", GOOD, TEST_RSA,    "RS256", CUT_SHORT, JWT_REJECTED},
    {"truncated ES256", "{\"alg\":\"ES256\",\"kid\":\"1\"}", GOOD, TEST_P256,   "ES256", CUT_SHORT, JWT_REJECTED},
    {"truncated EdDSA", "{\"alg\":\"EdDSA\",\"kid\":\"3\"}", GOOD, TEST_ED25519, "EdDSA", CUT_SHORT, JWT_REJECTED},
    {"two dots in a row", "{\"alg\":\"RS256\",\"kid\":\"0\"}", GOOD, TEST_RSA,  "RS256", PAYLOAD_DROPPED, JWT_REJECTED},
    {"four segments",  "{\"alg\":\"RS256\",\"kid\":\"0\"}", GOOD, TEST_RSA,     "RS256", SEGMENT_ADDED, JWT_REJECTED},
    {"aud twice",      "{\"alg\":\"EdDSA\",\"kid\":\"3\"}", CLAIMS("\"aud\":\"x\",\"aud\":\"here\",\"exp\":1700000060"),
                       TEST_ED25519, "EdDSA", AS_IT_IS, JWT_REJECTED},
    {"another aud",    "{\"alg\":\"EdDSA\",\"kid\":\"3\"}", CLAIMS("\"aud\":\"there\",\"exp\":1700000060"),
                       TEST_ED25519, "EdDSA", AS_IT_IS, JWT_REJECTED},
    {"no exp",         "{\"alg\":\"EdDSA\",\"kid\":\"3\"}", CLAIMS("\"aud\":\"here\""),
                       TEST_ED25519, "EdDSA", AS_IT_IS, JWT_REJECTED},
    {"expired",        "{\"alg\":\"EdDSA\",\"kid\":\"3\"}", CLAIMS("\"aud\":\"here\",\"exp\":1699999970"),
                       TEST_ED25519, "EdDSA", AS_IT_IS, JWT_REJECTED},
    {"nbf to come",    "{\"alg\":\"EdDSA\",\"kid\":\"3\"}",
                       CLAIMS("\"aud\":\"here\",\"exp\":1700000060,\"nbf\":1700000031"),
                       TEST_ED25519, "EdDSA", AS_IT_IS, JWT_REJECTED},
    {"crit",           "{\"alg\":\"EdDSA\",\"kid\":\"3\",\"crit\":[\"exp\"]}", GOOD,
                       TEST_ED25519, "EdDSA", AS_IT_IS, JWT_REJECTED},
    {"giant exp",      "{\"alg\":\"EdDSA\",\"kid\":\"3\"}", CLAIMS("\"aud\":\"here\",\"exp\":1e300"),
                       TEST_ED25519, "EdDSA", AS_IT_IS, JWT_REJECTED},
};
// clang-format on

static void put_number(struct buf *out, const char *name, const EVP_PKEY *key, const char *param)
{
    BIGNUM *number = NULL;
    char bytes[512];
    if (EVP_PKEY_get_bn_param(key, param, &number) == 1) {
        int len = BN_bn2bin(number, (unsigned char *)bytes);
        buf_printf(out, ",\"%s\":\"", name);
        secret_encode(out, span_make(bytes, (size_t)len));
        buf_put_char(out, '"');
    }
    BN_free(number);
}

static struct jwks *test_set(EVP_PKEY *const keys[TEST_KEYS], struct err *err)
{
    struct buf text = {0};
    char raw[64];
    size_t raw_len = sizeof raw;
    buf_put_text(&text, "{\"keys\":[{\"kid\":\"0\",\"kty\":\"RSA\"");
    put_number(&text, "n", keys[TEST_RSA], OSSL_PKEY_PARAM_RSA_N);
    put_number(&text, "e", keys[TEST_RSA], OSSL_PKEY_PARAM_RSA_E);
    for (int i = TEST_P256; i <= TEST_P384; i++) {
        buf_printf(&text, "},{\"kid\":\"%d\",\"kty\":\"EC\",\"crv\":\"%s\"", i, i == TEST_P256 ? "P-256" : "P-384");
        put_number(&text, "x", keys[i], OSSL_PKEY_PARAM_EC_PUB_X);
        put_number(&text, "y", keys[i], OSSL_PKEY_PARAM_EC_PUB_Y);
    }
    buf_put_text(&text, "},{\"kid\":\"3\",\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"");
    if (EVP_PKEY_get_raw_public_key(keys[TEST_ED25519], (unsigned char *)raw, &raw_len) == 1)
        secret_encode(&text, span_make(raw, raw_len));
    buf_put_text(&text, "\"}]}");
    struct jwks *set = jwks_parse(buf_span(&text), err);
    buf_release(&text);
    return set;
}

// Converts a signature from DER (OpenSSL) to r‖s.
static bool raw_ecdsa(unsigned char *signature, size_t *len, int half)
{
    const unsigned char *at = signature;
    ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &at, (long)*len);
    bool ok = pair && BN_bn2binpad(ECDSA_SIG_get0_r(pair), signature, half) == half &&
              BN_bn2binpad(ECDSA_SIG_get0_s(pair), signature + half, half) == half;
    ECDSA_SIG_free(pair);
    *len = (size_t)half * 2;
    return ok;
}

static bool sign(EVP_PKEY *key, const char *name, struct span text, unsigned char *out, size_t *len)
{
    const struct jwk_algorithm *algorithm = jwk_algorithm_find(name);
    EVP_MD_CTX *run = EVP_MD_CTX_new();
    EVP_PKEY_CTX *how = NULL;
    bool ok = run && EVP_DigestSignInit(run, &how, algorithm->digest ? algorithm->digest() : NULL, NULL, key) == 1 &&
              (!algorithm->pss || (EVP_PKEY_CTX_set_rsa_padding(how, RSA_PKCS1_PSS_PADDING) == 1 &&
                                   EVP_PKEY_CTX_set_rsa_pss_saltlen(how, RSA_PSS_SALTLEN_DIGEST) == 1)) &&
              EVP_DigestSign(run, out, len, (const unsigned char *)text.at, text.len) == 1;
    EVP_MD_CTX_free(run);
    if (ok && EVP_PKEY_is_a(key, "EC"))
        ok = raw_ecdsa(out, len, (EVP_PKEY_get_bits(key) + 7) / 8);
    return ok;
}

// Algorithm confusion: an HMAC with the text of the public key as its secret.
static bool mac_with_pem(EVP_PKEY *key, struct span text, unsigned char *out, size_t *len)
{
    BIO *memory = BIO_new(BIO_s_mem());
    char *pem = NULL;
    bool ok = memory && PEM_write_bio_PUBKEY(memory, key) == 1;
    long pem_len = ok ? BIO_get_mem_data(memory, &pem) : 0;
    if (ok)
        secret_mac(pem, (size_t)pem_len, text, out);
    *len = SECRET_MAC_BYTES;
    BIO_free(memory);
    return ok;
}

static bool make_token(const struct vector *vector, EVP_PKEY *key, struct buf *out)
{
    unsigned char signature[512];
    size_t len = sizeof signature;
    secret_encode(out, span_of(vector->header));
    buf_put_char(out, '.');
    size_t payload_at = out->len;
    secret_encode(out, span_of(vector->payload));
    bool ok = vector->flaw == SIGNED_WITH_PEM ? mac_with_pem(key, buf_span(out), signature, &len)
                                              : sign(key, vector->signed_as, buf_span(out), signature, &len);
    if (vector->flaw == PAYLOAD_DROPPED)
        out->len = payload_at;
    if (vector->flaw == CUT_SHORT)
        len--;
    buf_put_char(out, '.');
    if (vector->flaw != UNSIGNED)
        secret_encode(out, span_make((const char *)signature, len));
    if (vector->flaw == SEGMENT_ADDED)
        buf_put_text(out, ".e30");
    return ok;
}

static bool judge_vectors(EVP_PKEY *const keys[TEST_KEYS], const struct jwks *set, struct err *err)
{
    char *const audiences[] = {"here", NULL};
    const struct jwt_rules rules = {
        .issuer = "self", .audiences = audiences, .algorithms = JWT_ALGORITHMS_DEFAULT | JWT_ES384, .skew = 30};
    bool ok = true;
    for (size_t i = 0; ok && i < COUNT(vectors); i++) {
        struct buf token = {0};
        struct jwt_claims claims = {0};
        struct err why = {0};
        if (!make_token(&vectors[i], keys[vectors[i].key], &token))
            ok = err_set(err, ERR_SYSTEM, "token self-test: OpenSSL cannot sign with %s", vectors[i].signed_as);
        else if (jwt_verify(&rules, set, buf_span(&token), TEST_NOW, &claims, &why) != vectors[i].want)
            ok = err_set(err, ERR_INTERNAL, "token self-test: wrong outcome for \"%s\": %s", vectors[i].name,
                         why.code ? why.detail : "accepted");
        jwt_claims_release(&claims);
        buf_release(&token);
    }
    return ok;
}

bool jwt_self_test(struct err *err)
{
    EVP_PKEY *keys[TEST_KEYS] = {EVP_RSA_gen(2048), EVP_EC_gen("P-256"), EVP_EC_gen("P-384"),
                                 EVP_PKEY_Q_keygen(NULL, NULL, "ED25519")};
    bool ok = true;
    for (size_t i = 0; i < TEST_KEYS; i++)
        ok = ok && (keys[i] || err_set(err, ERR_SYSTEM, "token self-test: OpenSSL cannot generate keys"));
    struct jwks *set = ok ? test_set(keys, err) : NULL;
    ok = set && judge_vectors(keys, set, err);
    jwks_free(set);
    for (size_t i = 0; i < TEST_KEYS; i++)
        EVP_PKEY_free(keys[i]);
    ERR_clear_error();
    return ok;
}
