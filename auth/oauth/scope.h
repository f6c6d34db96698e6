// Scopes in metadata.
#ifndef AUTH_OAUTH_SCOPE_H
#define AUTH_OAUTH_SCOPE_H

#include "auth/oauth/oauth.h"

// Joins the words of a JSON list with spaces. Words that contain a space or are empty are skipped. NULL: no word is
// left.
const char *oauth_scope_join(const json_t *list, struct arena *arena);

#endif
