// Scopes as metadata list them.
#ifndef AUTH_OAUTH_SCOPE_H
#define AUTH_OAUTH_SCOPE_H

#include "auth/oauth/oauth.h"

// The words of a JSON list with a space between; one that has a space itself, or is empty, is left out. NULL: no word.
const char *oauth_scope_join(const json_t *list, struct arena *arena);

#endif
