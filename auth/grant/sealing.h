// Sealing records with the vault.
#ifndef AUTH_GRANT_SEALING_H
#define AUTH_GRANT_SEALING_H

#include "auth/grant/vault.h"

// A random key that all processes with the same records share, generated at the first use. It is for values that must
// stay valid after a restart or in another process, such as the forms of pages.
bool vault_shared_key(struct vault *vault, struct record_store *records, unsigned char out[VAULT_KEY_BYTES],
                      struct err *err) MUST_CHECK;

// `out` gets the sealed bytes.
bool vault_seal(struct vault *vault, struct record_name name, struct span plain, struct buf *out,
                struct err *err) MUST_CHECK;
// `out` gets the plain bytes; the caller wipes them (buf_wipe). ERR_CONFIG: the key is not in the ring; ERR_SYSTEM: the
// record was changed or moved.
bool vault_unseal(struct vault *vault, struct record_name name, struct span sealed, struct buf *out,
                  struct err *err) MUST_CHECK;

#endif
