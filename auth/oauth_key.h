// Reading the private key of a client.
#ifndef AUTH_OAUTH_KEY_H
#define AUTH_OAUTH_KEY_H

#include "base/arena.h"
#include "base/err.h"

// The text of a PEM file that only its owner may read; NULL with an error otherwise.
const char *oauth_key_read(const char *path, struct arena *arena, struct err *err) MUST_CHECK;

#endif
