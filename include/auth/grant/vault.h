// The vault: a ring of keys, and sealing of records with them (AES-256-GCM).
//
// A sealed record is
//
//     version (1 byte, 1) · key id (8) · nonce (12, random) · ciphertext · tag (16)
//
// and its additional data is  version · key id · space · 0 · key of the record.  So a record that was changed, or moved to
// another user's key, does not open. A key's id is the beginning of a digest of the key: nobody has to name keys.
//
// The ring is a text: keys of 32 bytes in base64, one on each line ('#' begins a comment; in an environment variable
// commas or spaces separate them). The first one seals, all of them open. It comes from the first of
//
//     vault.key_file              must belong to us, without rights for others; "fd:3" is a descriptor that is open
//     $POSTERN_VAULT_KEY
//     $CREDENTIALS_DIRECTORY/postern-vault-key (systemd)
//     vault.key in the state folder
//     the desktop's keyring (Secret Service), if secret-tool is there and answers in time
//
// and if there is none, one key is made at the first use, with a notice: in the keyring if it answers, else in vault.key
// (0600).
//
// What was sealed with a key that is not in the ring is an error that says so. It is never taken for "nothing there", never
// deleted, and no new ring is made while such records exist.
//
// A ring in a file is looked at again when the file changes, so that a running gateway follows a rotation. Not for more
// than one thread at a time.
#ifndef AUTH_VAULT_H
#define AUTH_VAULT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/option.h"
#include "store/record.h"
#include <stdint.h>

enum { VAULT_KEY_BYTES = 32, VAULT_ID_BYTES = 8, VAULT_ID_CHARS = 16, VAULT_KEYS_MAX = 16, VAULT_OVERHEAD = 37 };

// The spaces whose records are sealed: all there are.
#define VAULT_GRANTS "grant"
#define VAULT_CLIENTS "client"
#define VAULT_ATTEMPTS "attempt"
#define VAULT_ISSUERS "issuer"
#define VAULT_CHECK "vault"

struct vault_config {
    char *key_file;  // NULL: the other sources
};

bool vault_ring_is_descriptor(const struct vault_config *config);  // "fd:3": no path

// Does the file that is named hold keys, for us alone? A descriptor, which can be read once, is not looked at.
bool vault_check(const struct vault_config *config, struct err *err) MUST_CHECK;

extern const struct option_table vault_options;  // of struct vault_config

struct vault;

// Reads or makes the ring, and proves that it is the one the records were sealed with.
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
    size_t foreign;  // records in no format we know
    size_t damaged;  // that no key opens although it is there: they are changed, or moved from another place
};

bool vault_status(struct vault *vault, struct record_store *records, struct vault_status *out,
                  struct err *err) MUST_CHECK;

struct vault_rotation {
    char id[VAULT_ID_CHARS + 1];  // of the key that is current now
    bool made;                    // it is new; else the ring cannot be written here, and its first key is used
    size_t resealed, dropped;     // records; old keys that nothing was sealed with any more
    size_t damaged;               // records that were left as they are
};

// A new current key if the ring is a file of ours, and every record that opens sealed again with it. May be ended at any moment and
// run again, and beside a gateway: old keys stay in the ring until a later rotation finds that nothing needs them.
bool vault_rotate(struct vault *vault, struct record_store *records, struct vault_rotation *out,
                  struct err *err) MUST_CHECK;

#endif
