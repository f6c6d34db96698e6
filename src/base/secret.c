// Owns randomness, digests, constant-time comparison and base64url, over OpenSSL.
#include "base/secret.h"
#include "base/check.h"
#include "base/mem.h"
#define OPENSSL_API_COMPAT 10101  // for SHA256_Init() and its kin, see secret_digest()
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
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

// Not through EVP, which allocates, wipes and frees its state each time: a call through the gateway makes three short
// digests, and each would take twice as long.
void secret_digest(struct span message, unsigned char out[SECRET_MAC_BYTES])
{
    SHA256_CTX state;
    require(SHA256_Init(&state) && SHA256_Update(&state, message.at, message.len) && SHA256_Final(out, &state),
            "SHA-256");
}

#define PAIRS(high)                                                                                                  \
    high "0" high "1" high "2" high "3" high "4" high "5" high "6" high "7" high "8" high "9" high "a" high "b" high \
         "c" high "d" high "e" high "f"

void secret_digest_hex(struct span message, char out[SECRET_HEX_CHARS + 1])
{
    static const char pairs[] = PAIRS("0") PAIRS("1") PAIRS("2") PAIRS("3") PAIRS("4") PAIRS("5") PAIRS("6") PAIRS("7")
        PAIRS("8") PAIRS("9") PAIRS("a") PAIRS("b") PAIRS("c") PAIRS("d") PAIRS("e") PAIRS("f");
    unsigned char digest[SECRET_MAC_BYTES];
    secret_digest(message, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        memcpy(out + 2 * i, pairs + (size_t)2 * digest[i], 2);
    out[SECRET_HEX_CHARS] = '\0';
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

void secret_put_random(struct buf *out, size_t bytes)
{
    char random[64];
    CHECK(bytes <= sizeof random);
    secret_random(random, bytes);
    secret_encode(out, span_make(random, bytes));
    secret_wipe(random, sizeof random);
}

void secret_random_text(char *out, size_t bytes)
{
    struct buf text = {0};
    secret_put_random(&text, bytes);
    memcpy(out, buf_text(&text), SECRET_TEXT_SIZE(bytes));
    buf_wipe(&text);
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
