// Owns keys and signatures: importing a public key of a JWKS document, and verifying with OpenSSL.
//
// An issuer is trusted to publish its own keys, but not to publish sound ones: each key is checked on import (size,
// exponent, point on the curve), and private members are ignored. OpenSSL's error queue is cleared before returning,
// otherwise the next TLS connection would report these errors as its own.
#include "jwk.h"
#include "base/mem.h"
#include "base/scan.h"
#include "base/secret.h"
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <stdio.h>
#include <stdlib.h>

#define RSA_BITS_MIN 2048
#define RSA_BITS_MAX 8192      // a verification with a larger key takes too long
#define EXPONENT_BITS_MAX 64   // the same
#define RSA_BITS_CHECKED 4096  // the full check of a larger key would block the loop for 50 ms or more
#define POINT_MAX 66           // bytes in a coordinate of P-521

#define COUNT(array) (sizeof(array) / sizeof *(array))

// clang-format off
static const struct kind {
    enum jwk_kind kind;
    const char *kty, *crv;  // crv is OpenSSL's name too
    size_t size;            // bytes in a coordinate or in the whole public key; 0: any
    size_t signature;       // bytes in a signature; 0: as many as the modulus
} kinds[] = {
    {JWK_RSA,     "RSA", NULL,      0,  0},
    {JWK_P256,    "EC",  "P-256",   32, 64},
    {JWK_P384,    "EC",  "P-384",   48, 96},
    {JWK_P521,    "EC",  "P-521",   66, 132},
    {JWK_ED25519, "OKP", "Ed25519", 32, 64},
    {JWK_ED448,   "OKP", "Ed448",   57, 114},
};

static const struct jwk_algorithm algorithms[] = {
    {"RS256", JWT_RS256, JWK_RSA,                 EVP_sha256, false},
    {"RS384", JWT_RS384, JWK_RSA,                 EVP_sha384, false},
    {"RS512", JWT_RS512, JWK_RSA,                 EVP_sha512, false},
    {"PS256", JWT_PS256, JWK_RSA,                 EVP_sha256, true},
    {"PS384", JWT_PS384, JWK_RSA,                 EVP_sha384, true},
    {"PS512", JWT_PS512, JWK_RSA,                 EVP_sha512, true},
    {"ES256", JWT_ES256, JWK_P256,                EVP_sha256, false},
    {"ES384", JWT_ES384, JWK_P384,                EVP_sha384, false},
    {"ES512", JWT_ES512, JWK_P521,                EVP_sha512, false},
    {"EdDSA", JWT_EDDSA, JWK_ED25519 | JWK_ED448, NULL,       false},
};
// clang-format on

const struct jwk_algorithm *jwk_algorithm_find(const char *name)
{
    for (size_t i = 0; i < COUNT(algorithms); i++)
        if (strcmp(algorithms[i].name, name) == 0)
            return &algorithms[i];
    return NULL;
}

json_t *jwk_json(struct span text, const char *what, enum err_code code, struct err *err)
{
    struct span value;
    struct err problem;
    if (!scan_document(text, true, &value, &problem)) {
        (void)err_set(err, code, "%s: %s", what, problem.detail);
        return NULL;
    }
    // The error of jansson is not used, because it quotes the text. Integers are decoded as reals, so that an integer
    // above 64 bits is not an error, and dates need only one case.
    json_error_t unused;
    json_t *tree = json_loadb(text.at, text.len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &unused);
    if (json_is_object(tree))
        return tree;
    (void)err_set(err, code, "%s: %s", what, tree ? "not an object" : "a number or a text out of range");
    json_decref(tree);
    return NULL;
}

// ---- import ---------------------------------------------------------------------------------

// Decodes a member in base64url. Returns false if it is missing, empty or malformed.
static bool member_bytes(const json_t *jwk, const char *name, struct buf *out)
{
    const char *text = json_string_value(json_object_get(jwk, name));
    return text && secret_decode(out, span_of(text)) && out->len > 0;
}

static BIGNUM *member_number(const json_t *jwk, const char *name)
{
    struct buf bytes = {0};
    BIGNUM *number = NULL;
    if (member_bytes(jwk, name, &bytes))
        number = BN_bin2bn((const unsigned char *)bytes.at, (int)bytes.len, NULL);
    buf_release(&bytes);
    return number;
}

static EVP_PKEY *make_key(const char *type, OSSL_PARAM *params)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (!maker || EVP_PKEY_fromdata_init(maker) != 1 ||
        EVP_PKEY_fromdata(maker, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(maker);
    return key;
}

static EVP_PKEY *make_rsa(const BIGNUM *n, const BIGNUM *e)
{
    EVP_PKEY *key = NULL;
    OSSL_PARAM *params = NULL;
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    if (build && OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) && (params = OSSL_PARAM_BLD_to_param(build)))
        key = make_key("RSA", params);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    return key;
}

static EVP_PKEY *import_rsa(const json_t *jwk, const char **problem)
{
    EVP_PKEY *key = NULL;
    BIGNUM *n = member_number(jwk, "n"), *e = member_number(jwk, "e");
    if (!n || !e)
        *problem = "n or e is missing or not base64url";
    else if (BN_num_bits(n) < RSA_BITS_MIN)
        *problem = "the RSA modulus is too small (the minimum is 2048 bits)";
    else if (BN_num_bits(n) > RSA_BITS_MAX)
        *problem = "the RSA modulus is too large (the maximum is 8192 bits)";
    else if (!BN_is_odd(n))
        *problem = "the RSA modulus is even";
    else if (!BN_is_odd(e) || BN_num_bits(e) < 2 || BN_num_bits(e) > EXPONENT_BITS_MAX)
        *problem = "the RSA exponent must be odd, at least 3 and at most 64 bits";
    else
        key = make_rsa(n, e);
    BN_free(n);
    BN_free(e);
    return key;
}

// Reads a coordinate and pads it on the left, because some issuers drop leading zeros.
static bool coordinate(const json_t *jwk, const char *name, unsigned char *out, size_t size)
{
    struct buf bytes = {0};
    bool ok = member_bytes(jwk, name, &bytes) && bytes.len <= size;
    if (ok) {
        memset(out, 0, size);
        memcpy(out + size - bytes.len, bytes.at, bytes.len);
    }
    buf_release(&bytes);
    return ok;
}

static EVP_PKEY *import_ec(const json_t *jwk, const struct kind *kind, const char **problem)
{
    unsigned char point[1 + 2 * POINT_MAX] = {POINT_CONVERSION_UNCOMPRESSED};
    char group[16];
    if (!coordinate(jwk, "x", point + 1, kind->size) || !coordinate(jwk, "y", point + 1 + kind->size, kind->size)) {
        *problem = "x or y is missing, too long or not base64url";
        return NULL;
    }
    snprintf(group, sizeof group, "%s", kind->crv);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, group, 0),
        OSSL_PARAM_construct_octet_string(OSSL_PKEY_PARAM_PUB_KEY, point, 1 + 2 * kind->size),
        OSSL_PARAM_construct_end(),
    };
    return make_key("EC", params);
}

static EVP_PKEY *import_okp(const json_t *jwk, const struct kind *kind, const char **problem)
{
    struct buf bytes = {0};
    EVP_PKEY *key = NULL;
    if (!member_bytes(jwk, "x", &bytes) || bytes.len != kind->size)
        *problem = "x is missing, of the wrong length or not base64url";
    else
        key = EVP_PKEY_new_raw_public_key_ex(NULL, kind->crv, NULL, (const unsigned char *)bytes.at, bytes.len);
    buf_release(&bytes);
    return key;
}

static bool public_key_is_sound(EVP_PKEY *key)
{
    if (EVP_PKEY_is_a(key, "RSA") && EVP_PKEY_get_bits(key) > RSA_BITS_CHECKED)
        return true;
    EVP_PKEY_CTX *check = EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL);
    bool ok = check && EVP_PKEY_public_check(check) == 1;
    EVP_PKEY_CTX_free(check);
    return ok;
}

static bool import_key(const json_t *jwk, const struct kind *kind, struct jwk *out, const char **problem)
{
    *problem = "OpenSSL does not accept the key";
    if (kind->kind == JWK_RSA)
        out->key = import_rsa(jwk, problem);
    else if (strcmp(kind->kty, "EC") == 0)
        out->key = import_ec(jwk, kind, problem);
    else
        out->key = import_okp(jwk, kind, problem);
    if (!out->key)
        return false;
    *problem = "the public key is not valid";
    return public_key_is_sound(out->key);
}

// NULL: a type or curve that is not supported, which is not an error.
static const struct kind *kind_of(const json_t *jwk)
{
    const char *kty = json_string_value(json_object_get(jwk, "kty"));
    const char *crv = json_string_value(json_object_get(jwk, "crv"));
    for (size_t i = 0; kty && i < COUNT(kinds); i++)
        if (strcmp(kty, kinds[i].kty) == 0 && (!kinds[i].crv || (crv && strcmp(crv, kinds[i].crv) == 0)))
            return &kinds[i];
    return NULL;
}

static bool array_has(const json_t *array, const char *text)
{
    size_t i;
    const json_t *item;
    json_array_foreach(array, i, item)
        if (json_is_string(item) && strcmp(json_string_value(item), text) == 0)
            return true;
    return false;
}

// Reads kid, alg, use and key_ops.
static bool read_purpose(const json_t *jwk, struct jwk *out, const char **problem)
{
    const json_t *kid = json_object_get(jwk, "kid"), *alg = json_object_get(jwk, "alg");
    const json_t *use = json_object_get(jwk, "use"), *ops = json_object_get(jwk, "key_ops");
    *problem = "kid, alg, use or key_ops is of the wrong type";
    if ((kid && !json_is_string(kid)) || (alg && !json_is_string(alg)) || (use && !json_is_string(use)) ||
        (ops && !json_is_array(ops)))
        return false;
    out->kid = mem_string(json_string_value(kid));
    if ((use && strcmp(json_string_value(use), "sig") != 0) || (ops && !array_has(ops, "verify")))
        return true;
    for (size_t i = 0; i < COUNT(algorithms); i++)
        if ((algorithms[i].kinds & out->kind) && (!alg || strcmp(json_string_value(alg), algorithms[i].name) == 0))
            out->algorithms |= algorithms[i].bit;
    return true;
}

bool jwk_import(const json_t *member, struct jwk *out, const char **problem)
{
    const struct kind *kind = kind_of(member);
    *problem = NULL;
    *out = (struct jwk){.kind = kind ? kind->kind : 0};
    return kind && read_purpose(member, out, problem) && import_key(member, kind, out, problem);
}

void jwk_release(struct jwk *jwk)
{
    EVP_PKEY_free(jwk->key);
    free(jwk->kid);
    *jwk = (struct jwk){0};
}

// ---- signatures -----------------------------------------------------------------------------

static size_t signature_size(const struct jwk *jwk)
{
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (kinds[i].kind == jwk->kind && kinds[i].signature)
            return kinds[i].signature;
    return (size_t)EVP_PKEY_get_size(jwk->key);
}

// Converts a signature from r‖s (JOSE) to DER (OpenSSL). Returns the length in bytes, or 0.
static size_t ecdsa_der(struct span raw, unsigned char **der)
{
    int half = (int)(raw.len / 2), len = 0;
    const unsigned char *at = (const unsigned char *)raw.at;
    ECDSA_SIG *pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(at, half, NULL), *s = BN_bin2bn(at + half, half, NULL);
    if (pair && r && s && ECDSA_SIG_set0(pair, r, s) == 1) {
        len = i2d_ECDSA_SIG(pair, der);
    } else {
        BN_free(r);
        BN_free(s);
    }
    ECDSA_SIG_free(pair);
    return len > 0 ? (size_t)len : 0;
}

static bool digest_verify(const struct jwk *jwk, const struct jwk_algorithm *algorithm, struct span text,
                          struct span signature)
{
    EVP_MD_CTX *run = EVP_MD_CTX_new();
    EVP_PKEY_CTX *how = NULL;
    bool ok =
        run && EVP_DigestVerifyInit(run, &how, algorithm->digest ? algorithm->digest() : NULL, NULL, jwk->key) == 1;
    if (ok && jwk->kind == JWK_RSA)
        ok = EVP_PKEY_CTX_set_rsa_padding(how, algorithm->pss ? RSA_PKCS1_PSS_PADDING : RSA_PKCS1_PADDING) == 1;
    if (ok && algorithm->pss)
        ok = EVP_PKEY_CTX_set_rsa_pss_saltlen(how, RSA_PSS_SALTLEN_DIGEST) == 1;
    ok = ok && EVP_DigestVerify(run, (const unsigned char *)signature.at, signature.len, (const unsigned char *)text.at,
                                text.len) == 1;
    EVP_MD_CTX_free(run);
    return ok;
}

bool jwk_verify(const struct jwk *jwk, const struct jwk_algorithm *algorithm, struct span text, struct span signature)
{
    if (!(jwk->algorithms & algorithm->bit) || signature.len != signature_size(jwk))
        return false;
    unsigned char *der = NULL;
    bool ok;
    if (jwk->kind & (JWK_P256 | JWK_P384 | JWK_P521)) {
        size_t len = ecdsa_der(signature, &der);
        ok = len && digest_verify(jwk, algorithm, text, span_make((const char *)der, len));
        OPENSSL_free(der);
    } else {
        ok = digest_verify(jwk, algorithm, text, signature);
    }
    ERR_clear_error();
    return ok;
}
