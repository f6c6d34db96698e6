// The ring of keys: where it comes from, reading it, making it, and writing it with a new key.
#ifndef AUTH_VAULT_RING_H
#define AUTH_VAULT_RING_H

#include "auth/grant/vault.h"
#include "base/err.h"
#include <sys/stat.h>

struct vault_ring_key {
    unsigned char id[VAULT_ID_BYTES];
    unsigned char bytes[VAULT_KEY_BYTES];
};

// In a page of its own that is not swapped out (where the system allows it) and not part of core files.
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
    enum vault_ring_source source;  // NONE: there is no ring yet; `name` is the file to make
    char *name;                     // a path, or what people call it
    bool keyring;                   // of NONE: there is a keyring, and it has no key
    struct buf found;               // in the keyring, until it is read
    struct stat seen;               // of the file when it was read
};

struct vault_ring *vault_ring_new(void);
void vault_ring_free(struct vault_ring *ring);

// Where the ring is, by the order in auth/grant/vault.h.
bool vault_ring_locate(const struct vault_config *config, struct vault_ring_place *place, struct err *err) MUST_CHECK;
bool vault_ring_read(struct vault_ring_place *place, struct vault_ring *ring, struct err *err) MUST_CHECK;
void vault_ring_place_release(struct vault_ring_place *place);
bool vault_ring_changed(const struct vault_ring_place *place);  // since it was read
// Makes one new key, in the keyring if there is one, else in the file, unless somebody else has just done it.
bool vault_ring_make(struct vault_ring_place *place, struct err *err) MUST_CHECK;
// Replaces the file at once: the old ring or the new one is there, never less.
bool vault_ring_write(const struct vault_ring_place *place, const struct vault_ring *ring, struct err *err) MUST_CHECK;

const struct vault_ring_key *vault_ring_find(const struct vault_ring *ring, const unsigned char id[VAULT_ID_BYTES]);
void vault_ring_key_make(struct vault_ring_key *key);  // random

#endif
