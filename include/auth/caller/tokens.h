// Static bearer tokens: their format, the file that holds their digests, and changing that file.
//
//     postern_<id>_<secret>_<crc>      8, 43 and 6 characters of [0-9A-Za-z]
//
// The id is public: it is the look-up key, and the name of the token in logs. The secret is 43 random characters,
// just over 256 bits. The crc is the CRC-32 of everything before its `_`, in base 62: it distinguishes a token from a
// typo, or from a false positive of a secret scanner, without the file. The file holds the SHA-256 of the whole token;
// since a token is random, a slow hash is not needed.
#ifndef AUTH_TOKEN_FILE_H
#define AUTH_TOKEN_FILE_H

#include "auth/caller/identity.h"
#include "auth/caller/provider.h"
#include "base/err.h"
#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CALLER_TOKEN_PREFIX "postern_"
#define CALLER_TOKEN_ID_CHARS 8
#define CALLER_TOKEN_SECRET_CHARS 43
#define CALLER_TOKEN_CRC_CHARS 6
#define CALLER_TOKEN_TOKEN_CHARS                                                                  \
    (sizeof CALLER_TOKEN_PREFIX - 1 + CALLER_TOKEN_ID_CHARS + 1 + CALLER_TOKEN_SECRET_CHARS + 1 + \
     CALLER_TOKEN_CRC_CHARS)

struct caller_token {
    const char *id, *sha256, *subject;
    const char *const *roles;                              // NULL at the end
    const char *tenant, *created, *expires, *description;  // NULL: absent
    // Computed from the above when the file is read:
    unsigned char digest[32];
    int64_t expires_at;  // seconds since the epoch; 0: never
    struct identity *identity;
};

// ---- reading tokens -------------------------------------------------------------------------

// The content of the file when it was read: immutable and counted.
struct caller_tokens;

struct caller_tokens *caller_tokens_load(const char *path, struct err *err) MUST_CHECK;
void caller_tokens_free(struct caller_tokens *file);

// True if the format and the crc are right, whether or not a file contains the token.
bool caller_tokens_is_token(struct span token);

size_t caller_tokens_count(const struct caller_tokens *file);
const struct caller_token *caller_tokens_at(const struct caller_tokens *file, size_t i);
const struct caller_token *caller_tokens_named(const struct caller_tokens *file, struct span id);  // NULL: none
bool caller_tokens_expired(const struct caller_token *entry, int64_t now);

// "2027-01-31" is the end of that day, UTC; else RFC 3339. Sets the first second that is too late.
bool caller_tokens_date(const char *text, int64_t *seconds);
void caller_tokens_stamp(int64_t seconds, char out[32]);  // RFC 3339, UTC

// ---- making and changing --------------------------------------------------------------------

// A new token; wipe it after it was handed over.
struct caller_token_minted {
    char token[CALLER_TOKEN_TOKEN_CHARS + 1], id[CALLER_TOKEN_ID_CHARS + 1], sha256[64 + 1];
};
void caller_tokens_mint(struct caller_token_minted *out);

// One change of the file. The file is locked (.<name>.lock beside it) from start until it is saved or the edit is freed.
// It is replaced as a whole by save, once; changes that are not saved are discarded.
struct caller_tokens_edit;

// With `create`, a file that does not exist counts as empty.
struct caller_tokens_edit *caller_tokens_edit_start(const char *path, bool create, struct err *err) MUST_CHECK;
const struct caller_tokens *caller_tokens_edit_before(const struct caller_tokens_edit *edit);
// Adds the entry, or replaces the one with its id. An entry that could not be read again is refused.
bool caller_tokens_edit_put(struct caller_tokens_edit *edit, const struct caller_token *entry,
                            struct err *err) MUST_CHECK;
void caller_tokens_edit_remove(struct caller_tokens_edit *edit, const char *id);
bool caller_tokens_edit_save(struct caller_tokens_edit *edit, struct err *err) MUST_CHECK;
void caller_tokens_edit_free(struct caller_tokens_edit *edit);

#endif
