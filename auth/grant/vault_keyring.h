// The key of the vault in the desktop's keyring (Secret Service), by way of the program secret-tool.
#ifndef AUTH_VAULT_KEYRING_H
#define AUTH_VAULT_KEYRING_H

#include "base/buf.h"
#include "base/err.h"

// Zero is "who knows": there is no keyring here, or it does not answer.
enum vault_keyring_answer { VAULT_KEYRING_SILENT, VAULT_KEYRING_NONE, VAULT_KEYRING_FOUND };

// The key of the store whose key file would be `file`. Takes two seconds at most: a keyring that cannot ask anybody for its
// password hangs.
enum vault_keyring_answer vault_keyring_find(const char *file, struct buf *text);
// Puts it there, unless there is one already; `text` gets what is there then. False: it could not be done.
bool vault_keyring_make(const char *file, struct span key, struct buf *text) MUST_CHECK;

#endif
