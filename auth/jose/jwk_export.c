// Owns exporting public keys: from a PEM text to a JWK (RFC 7517) and its thumbprint (RFC 7638).
#include "auth/jose/jwk_export.h"
#include "base/secret.h"
#include "jwk.h"
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>

#define NUMBER_MAX 1024  // bytes of an RSA modulus

static const struct curve {
    const char *group, *name, *algorithm;
    int size;
} curves[] = {
    {"prime256v1", "P-256", "ES256", 32},
    {"secp384r1", "P-384", "ES384", 48},
    {"secp521r1", "P-521", "ES512", 66},
};

static int no_passphrase(char *to, int room, int writing, void *arg)
{
    (void)writing, (void)arg;
    if (room > 0)
        *to = '\0';
    return -1;  // a gateway cannot prompt for a passphrase
}

static EVP_PKEY *read_pem(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PUBKEY(bio, NULL, no_passphrase, NULL) : NULL;
    if (bio && !key && BIO_reset(bio) == 1)
        key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    BIO_free(bio);
    ERR_clear_error();
    return key;
}

// `size`: the length in bytes that the number is padded to; 0: no padding.
static bool put_number(json_t *jwk, const char *member, const EVP_PKEY *key, const char *param, int size)
{
    unsigned char bytes[NUMBER_MAX];
    struct buf text = {0};
    BIGNUM *number = NULL;
    int len = EVP_PKEY_get_bn_param(key, param, &number) == 1 ? (size ? size : BN_num_bytes(number)) : 0;
    bool ok = len > 0 && (size_t)len <= sizeof bytes && BN_bn2binpad(number, bytes, len) == len;
    if (ok) {
        secret_encode(&text, span_make((const char *)bytes, (size_t)len));
        json_object_set_new(jwk, member, json_string(buf_text(&text)));
    }
    buf_release(&text);
    BN_free(number);
    return ok;
}

// Adds the members that identify the key, in the order that the thumbprint requires.
static bool put_members(const EVP_PKEY *key, json_t *jwk, const char **algorithm)
{
    char group[32] = "";
    *algorithm = NULL;
    if (EVP_PKEY_is_a(key, "RSA"))
        return put_number(jwk, "e", key, OSSL_PKEY_PARAM_RSA_E, 0) &&
               json_object_set_new(jwk, "kty", json_string("RSA")) == 0 &&
               put_number(jwk, "n", key, OSSL_PKEY_PARAM_RSA_N, 0);
    if (!EVP_PKEY_is_a(key, "EC") ||
        EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, group, sizeof group, NULL) != 1)
        return false;
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        if (strcmp(group, curves[i].group) == 0) {
            *algorithm = curves[i].algorithm;
            return json_object_set_new(jwk, "crv", json_string(curves[i].name)) == 0 &&
                   json_object_set_new(jwk, "kty", json_string("EC")) == 0 &&
                   put_number(jwk, "x", key, OSSL_PKEY_PARAM_EC_PUB_X, curves[i].size) &&
                   put_number(jwk, "y", key, OSSL_PKEY_PARAM_EC_PUB_Y, curves[i].size);
        }
    return false;
}

static void put_thumbprint(json_t *jwk)
{
    unsigned char digest[SECRET_MAC_BYTES];
    struct buf id = {0};
    char *text = json_dumps(jwk, JSON_COMPACT);  // members keep the order in which they were added
    secret_digest(span_of(text), digest);
    secret_encode(&id, span_make((const char *)digest, sizeof digest));
    json_object_set_new(jwk, "kid", json_string(buf_text(&id)));
    buf_release(&id);
    free(text);
}

json_t *jwk_export_pem(const char *pem, const char *id, const char *algorithm)
{
    EVP_PKEY *key = read_pem(pem);
    json_t *jwk = json_object();
    const char *own;
    bool ok = key && put_members(key, jwk, &own);
    EVP_PKEY_free(key);
    ERR_clear_error();
    ok = ok && (!algorithm || (own ? strcmp(own, algorithm) == 0 : strncmp(algorithm, "RS", 2) == 0));
    if (!ok) {
        json_decref(jwk);
        return NULL;
    }
    if (id)
        json_object_set_new(jwk, "kid", json_string(id));
    else
        put_thumbprint(jwk);
    json_object_set_new(jwk, "use", json_string("sig"));
    if (own || algorithm)
        json_object_set_new(jwk, "alg", json_string(own ? own : algorithm));
    return jwk;
}
