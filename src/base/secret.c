// Owns randomness, digests, constant-time comparison and base64url, over OpenSSL.
#include "base/secret.h"
#include "base/mem.h"
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "postern: %s failed in OpenSSL\n", what);
    abort();
}

void secret_random(void *out, size_t len) { require(RAND_bytes(out, (int)len) == 1, "random"); }

void secret_mac(const void *key, size_t key_len, struct span message, unsigned char out[SECRET_MAC_BYTES])
{
    unsigned len = 0;
    require(HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)message.at, message.len, out, &len) &&
                len == SECRET_MAC_BYTES,
            "HMAC");
}

// Looked up once, and one context for each thread: both take longer than a short digest.
static EVP_MD *sha256;
static pthread_key_t digest_key;

static void free_context(void *context) { EVP_MD_CTX_free(context); }

static void find_sha256(void)
{
    require((sha256 = EVP_MD_fetch(NULL, "SHA256", NULL)) && pthread_key_create(&digest_key, free_context) == 0,
            "SHA-256");
}

static EVP_MD_CTX *digest_context(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    require(pthread_once(&once, find_sha256) == 0, "SHA-256");
    EVP_MD_CTX *context = pthread_getspecific(digest_key);
    if (!context) {
        context = EVP_MD_CTX_new();
        require(context && pthread_setspecific(digest_key, context) == 0, "SHA-256");
    }
    return context;
}

void secret_digest(struct span message, unsigned char out[SECRET_MAC_BYTES])
{
    EVP_MD_CTX *context = digest_context();
    require(EVP_DigestInit_ex2(context, sha256, NULL) == 1 && EVP_DigestUpdate(context, message.at, message.len) == 1 &&
                EVP_DigestFinal_ex(context, out, NULL) == 1,
            "SHA-256");
}

bool secret_equal(const void *a, const void *b, size_t len) { return CRYPTO_memcmp(a, b, len) == 0; }

void secret_wipe(void *bytes, size_t len) { OPENSSL_cleanse(bytes, len); }

void secret_set(struct secret *secret, struct span bytes)
{
    char *copy = bytes.len ? mem_span(bytes) : NULL;
    secret_release(secret);
    *secret = (struct secret){copy, bytes.len};
}

void secret_release(struct secret *secret)
{
    if (secret->bytes)
        secret_wipe(secret->bytes, secret->len);
    free(secret->bytes);
    *secret = (struct secret){0};
}

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void secret_encode(struct buf *out, struct span bytes)
{
    unsigned hold = 0, bits = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        hold = (hold << 8 | (unsigned char)bytes.at[i]) & 0xFFFFU;
        for (bits += 8; bits >= 6; bits -= 6)
            buf_put_char(out, alphabet[hold >> (bits - 6) & 63]);
    }
    if (bits)
        buf_put_char(out, alphabet[hold << (6 - bits) & 63]);
}

bool secret_decode(struct buf *out, struct span text)
{
    unsigned hold = 0, bits = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char *digit = text.at[i] ? strchr(alphabet, text.at[i]) : NULL;
        if (!digit)
            return false;
        hold = (hold << 6 | (unsigned)(digit - alphabet)) & 0xFFFFU;
        if ((bits += 6) >= 8) {
            bits -= 8;
            buf_put_char(out, (char)(hold >> bits));
        }
    }
    return bits < 6 && (hold & ((1U << bits) - 1)) == 0;  // one spelling for each value
}
