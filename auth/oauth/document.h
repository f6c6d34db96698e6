// JSON documents as the files of this room read them.
#ifndef AUTH_OAUTH_DOCUMENT_H
#define AUTH_OAUTH_DOCUMENT_H

#include "auth/oauth/oauth.h"

// oauth_document_string() in the arena, or NULL.
const char *oauth_document_copy(const json_t *object, const char *name, struct arena *arena);
// A tree as text; gives up the reference.
void oauth_document_put(json_t *tree, struct buf *out);

#endif
