// The key of the vault in the desktop's keyring (Secret Service), through the program secret-tool.
#ifndef AUTH_VAULT_KEYRING_H
#define AUTH_VAULT_KEYRING_H

#include "base/buf.h"
#include "base/err.h"

// VAULT_KEYRING_SILENT (zero): unknown, since no keyring has answered. VAULT_KEYRING_NONE: the keyring lacks the key.
enum vault_keyring_answer { VAULT_KEYRING_SILENT, VAULT_KEYRING_NONE, VAULT_KEYRING_FOUND };

// Finds the key of the store whose key file would be `file`. Takes two seconds at most, because a locked keyring hangs
// when it cannot ask a user for its password.
enum vault_keyring_answer vault_keyring_find(const char *file, struct buf *text);
// Stores the key, unless the keyring already has one; `text` gets the key that the keyring has afterwards.
bool vault_keyring_make(const char *file, struct span key, struct buf *text) MUST_CHECK;

#endif
