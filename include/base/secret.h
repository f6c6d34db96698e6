// Randomness, digests and constant-time comparison: the only user of OpenSSL outside auth/.
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include "base/buf.h"
#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>

#define SECRET_MAC_BYTES 32
#define SECRET_HEX_CHARS 64

void secret_random(void *out, size_t len);  // cryptographic; ends the process if the random generator fails
void secret_mac(const void *key, size_t key_len, struct span message, unsigned char out[SECRET_MAC_BYTES]);
void secret_digest(struct span message, unsigned char out[SECRET_MAC_BYTES]);  // SHA-256
void secret_digest_hex(struct span message, char out[SECRET_HEX_CHARS + 1]);   // the same, in lower-case hex
bool secret_equal(const void *a, const void *b, size_t len);                   // constant time
void secret_wipe(void *bytes, size_t len);

// A secret text, with a type of its own so that "%s" cannot print it. Zeroed: empty.
struct secret {
    char *bytes;  // NUL-terminated
    size_t len;
};
void secret_set(struct secret *secret, struct span bytes);  // copies the text; the previous one is wiped
void secret_release(struct secret *secret);                 // wiped and freed
static inline struct span secret_span(const struct secret *secret) { return (struct span){secret->bytes, secret->len}; }

// base64url without padding (RFC 4648 §5).
void secret_encode(struct buf *out, struct span bytes);
void secret_put_random(struct buf *out, size_t bytes);  // that many random bytes, encoded; at most 64
// The same, NUL-terminated, for an identifier of fixed length: `out` is an array of SECRET_TEXT_SIZE(bytes).
#define SECRET_TEXT_SIZE(bytes) (((bytes)*8 + 5) / 6 + 1)
void secret_random_text(char *out, size_t bytes);
bool secret_decode(struct buf *out, struct span text);

#endif
