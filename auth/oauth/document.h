// Shared by the files of auth/oauth: reading and writing JSON documents.
#ifndef AUTH_OAUTH_DOCUMENT_H
#define AUTH_OAUTH_DOCUMENT_H

#include "auth/oauth/oauth.h"

// oauth_document_string() in the arena, or NULL.
const char *oauth_document_copy(const json_t *object, const char *name, struct arena *arena);
// Appends a tree as text, and releases the caller's reference.
void oauth_document_put(json_t *tree, struct buf *out);

#endif
