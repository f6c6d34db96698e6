// The vault: a ring of keys, and sealing of records with them (AES-256-GCM).
//
// A sealed record is
//
//     version (1 byte, 1) · key id (8) · nonce (12, random) · ciphertext · tag (16)
//
// and its additional data is  version · key id · space · 0 · key of the record.  So a record that was changed, or moved
// to another user's key, does not open. A key's id is the beginning of a digest of the key, so that keys need no names.
//
// The ring is a text: keys of 32 bytes in base64, one on each line ('#' begins a comment; in an environment variable
// commas or spaces separate them). The first key seals, all keys open. The ring is read from the first of these
// sources:
//
//     vault.key_file              must belong to our user, with no access for others; "fd:3" is an inherited descriptor
//     $POSTERN_VAULT_KEY
//     $CREDENTIALS_DIRECTORY/postern-vault-key (systemd)
//     vault.key in the state folder
//     the desktop's keyring (Secret Service), if secret-tool is installed and answers in time
//
// If none of them exists, a key is generated at the first use, with a notice in the log: in the keyring if it answers,
// else in vault.key (0600).
//
// Opening a record that was sealed with a key outside the ring fails with an error that names the key. Such a record is
// never treated as absent and never deleted, and no new ring is generated while one exists.
//
// A ring in a file is read again when the file changes, so that a running gateway follows a rotation. A vault may be
// used by one thread at a time only.
#ifndef AUTH_VAULT_H
#define AUTH_VAULT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/option.h"
#include "store/record.h"
#include <stdint.h>

enum { VAULT_KEY_BYTES = 32, VAULT_ID_BYTES = 8, VAULT_ID_CHARS = 16, VAULT_KEYS_MAX = 16, VAULT_OVERHEAD = 37 };

// The spaces of the record store; the records of all of them are sealed.
#define VAULT_GRANTS "grant"
#define VAULT_CLIENTS "client"
#define VAULT_ATTEMPTS "attempt"
#define VAULT_ISSUERS "issuer"
#define VAULT_CHECK "vault"

struct vault_config {
    char *key_file;  // NULL: the other sources
};

bool vault_ring_is_descriptor(const struct vault_config *config);  // "fd:3", not a path

// Checks that the configured file contains valid keys and that only our user can read it. A descriptor is not checked,
// because it can be read only once.
bool vault_check(const struct vault_config *config, struct err *err) MUST_CHECK;

extern const struct option_table vault_options;  // of struct vault_config

struct vault;

// Reads or generates the ring, and verifies that the records were sealed with it.
struct vault *vault_open(const struct vault_config *config, struct record_store *records, struct err *err) MUST_CHECK;
void vault_free(struct vault *vault);
const char *vault_source(const struct vault *vault);  // for people: a path, or the variable's name

// Seals with a key of the caller's, such as one derived from grant_store_key(); for any thread. `out` gets the bytes.
bool vault_seal_with(const unsigned char key[VAULT_KEY_BYTES], struct record_name name, struct span plain,
                     struct buf *out) MUST_CHECK;
// False: it was sealed with another key or name, or changed.
bool vault_unseal_with(const unsigned char key[VAULT_KEY_BYTES], struct record_name name, struct span sealed,
                       struct buf *out) MUST_CHECK;

// ---- rotation -------------------------------------------------------------------------------

struct vault_key {
    char id[VAULT_ID_CHARS + 1];
    bool in_ring, current;
    size_t records;  // sealed with it
};

struct vault_status {
    struct vault_key keys[2 * VAULT_KEYS_MAX];  // those in the ring first, the current one at the beginning
    size_t count;
    size_t foreign;  // records in an unknown format
    size_t damaged;  // records that do not open although their key is in the ring: changed, or moved from another place
};

bool vault_status(struct vault *vault, struct record_store *records, struct vault_status *out,
                  struct err *err) MUST_CHECK;

struct vault_rotation {
    char id[VAULT_ID_CHARS + 1];  // of the current key after the rotation
    bool made;                    // the current key is new; false: the ring is not a file, and its first key was used
    size_t resealed, dropped;     // resealed records; unused old keys that were removed from the ring
    size_t damaged;               // records that do not open and were left unchanged
};

// Adds a new current key if the ring is a file, and seals every record that opens again with the current key. May be
// interrupted at any moment and run again, also while a gateway runs: old keys stay in the ring until a later rotation
// finds that no record needs them.
bool vault_rotate(struct vault *vault, struct record_store *records, struct vault_rotation *out,
                  struct err *err) MUST_CHECK;

#endif
