// The ring of keys: its sources, reading it, generating it, and replacing it with a ring that has a new key.
#ifndef AUTH_VAULT_RING_H
#define AUTH_VAULT_RING_H

#include "auth/grant/vault.h"
#include "base/err.h"
#include <sys/stat.h>

struct vault_ring_key {
    unsigned char id[VAULT_ID_BYTES];
    unsigned char bytes[VAULT_KEY_BYTES];
};

// In separate pages, which are locked in memory (where the system permits it) and excluded from core dumps.
struct vault_ring {
    struct vault_ring_key keys[VAULT_KEYS_MAX];  // the first one seals
    size_t count;
};

enum vault_ring_source {
    VAULT_RING_NONE,
    VAULT_RING_FILE,
    VAULT_RING_VARIABLE,
    VAULT_RING_CREDENTIAL,
    VAULT_RING_DESCRIPTOR,
    VAULT_RING_KEYRING,
};

struct vault_ring_place {
    enum vault_ring_source source;  // VAULT_RING_NONE: the ring does not exist; `name` is the file to create
    char *name;                     // a path, or the name of the source for messages
    bool keyring;                   // with VAULT_RING_NONE: a keyring answers, and lacks the key
    struct buf found;               // the ring from the keyring, until it is read
    struct stat seen;               // the status of the file when it was read
};

struct vault_ring *vault_ring_new(void);
void vault_ring_free(struct vault_ring *ring);

// Finds the source of the ring, in the order given in auth/grant/vault.h.
bool vault_ring_locate(const struct vault_config *config, struct vault_ring_place *place, struct err *err) MUST_CHECK;
bool vault_ring_read(struct vault_ring_place *place, struct vault_ring *ring, struct err *err) MUST_CHECK;
void vault_ring_place_release(struct vault_ring_place *place);
bool vault_ring_changed(const struct vault_ring_place *place);  // since it was read
// Generates a key, in the keyring if there is one, else in the file. If another process has just done so, its key is
// kept.
bool vault_ring_make(struct vault_ring_place *place, struct err *err) MUST_CHECK;
// Replaces the file atomically: it always contains the whole old ring or the whole new one.
bool vault_ring_write(const struct vault_ring_place *place, const struct vault_ring *ring, struct err *err) MUST_CHECK;

const struct vault_ring_key *vault_ring_find(const struct vault_ring *ring, const unsigned char id[VAULT_ID_BYTES]);
void vault_ring_key_make(struct vault_ring_key *key);  // random

#endif
