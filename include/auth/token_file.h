// Static bearer tokens: what they look like, the file that knows them by digest, and changing that file.
//
//     postern_<id>_<secret>_<crc>      8, 43 and 6 characters of [0-9A-Za-z]
//
// The id is public: the look-up key, and what logs and people call the token. The secret is 43 random
// characters, just over 256 bits. The crc is the CRC-32 of all before its `_`, in base 62, so that a
// typo or a scanner's false find is told from a token without the file. The file holds the SHA-256 of
// the whole token; being random, a token needs no slow hash.
#ifndef AUTH_TOKEN_FILE_H
#define AUTH_TOKEN_FILE_H

#include "auth/identity.h"
#include "auth/provider.h"
#include "base/err.h"
#include "base/span.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_FILE_PREFIX "postern_"
#define TOKEN_FILE_ID_CHARS 8
#define TOKEN_FILE_SECRET_CHARS 43
#define TOKEN_FILE_CRC_CHARS 6
#define TOKEN_FILE_TOKEN_CHARS \
    (sizeof TOKEN_FILE_PREFIX - 1 + TOKEN_FILE_ID_CHARS + 1 + TOKEN_FILE_SECRET_CHARS + 1 + TOKEN_FILE_CRC_CHARS)

struct token_entry {
    const char *id, *sha256, *subject;
    const char *const *roles;                              // NULL at the end
    const char *tenant, *created, *expires, *description;  // NULL: not given
    // Made from the above when the file is read:
    unsigned char digest[32];
    int64_t expires_at;  // seconds since the epoch; 0: never
    struct identity *identity;
};

// ---- knowing tokens -------------------------------------------------------------------------

// What the file said when it was read: immutable and counted.
struct token_file;

struct token_file *token_file_load(const char *path, struct err *err) MUST_CHECK;
// Under which name of a provider the entries are known; `bearer` if nobody says. Before any identity is taken.
void token_file_vouch(struct token_file *file, const char *provider);
struct token_file *token_file_ref(struct token_file *file);
void token_file_unref(struct token_file *file);
bool token_file_stale(const struct token_file *file);  // the file on disk is another one by now

// PASS: not one of our tokens, somebody else may know it. REJECT: ours, but damaged, unknown, wrong or
// expired; one digest and one comparison in all cases. ACCEPT: *out is the entry, as long as the file is held.
enum provider_verdict token_file_find(const struct token_file *file, struct span presented, int64_t now,
                                      const struct token_entry **out);
struct identity *token_file_identity(const struct token_entry *entry);  // of an entry of a file; a new reference
// It is a whole token: the shape and the crc are right. Says nothing about whether anybody knows it.
bool token_file_is_token(struct span token);

size_t token_file_count(const struct token_file *file);
const struct token_entry *token_file_at(const struct token_file *file, size_t i);
const struct token_entry *token_file_named(const struct token_file *file, struct span id);  // NULL: none
bool token_file_expired(const struct token_entry *entry, int64_t now);

// "2027-01-31" is the end of that day, UTC; else RFC 3339. Gives the first second that is too late.
bool token_file_date(const char *text, int64_t *seconds);
void token_file_stamp(int64_t seconds, char out[32]);  // RFC 3339, UTC

// ---- making and changing --------------------------------------------------------------------

// A new token; wipe it when it has been handed over.
struct token_minted {
    char token[TOKEN_FILE_TOKEN_CHARS + 1], id[TOKEN_FILE_ID_CHARS + 1], sha256[64 + 1];
};
void token_file_mint(struct token_minted *out);

// One change of the file: it is locked (.<name>.lock beside it) from start until it is saved or the
// edit freed, and replaced as a whole by save, once; what was put or removed without a save is forgotten.
struct token_file_edit;

// With `create`, a file that does not exist is an empty one.
struct token_file_edit *token_file_edit_start(const char *path, bool create, struct err *err) MUST_CHECK;
const struct token_file *token_file_edit_before(const struct token_file_edit *edit);
// Adds the entry, or replaces the one with its id. An entry that could not be read again is refused.
bool token_file_edit_put(struct token_file_edit *edit, const struct token_entry *entry, struct err *err) MUST_CHECK;
void token_file_edit_remove(struct token_file_edit *edit, const char *id);
bool token_file_edit_save(struct token_file_edit *edit, struct err *err) MUST_CHECK;
void token_file_edit_free(struct token_file_edit *edit);

#endif
