// Building the URLs of well-known documents.
#ifndef AUTH_OAUTH_URL_H
#define AUTH_OAUTH_URL_H

#include "auth/oauth/oauth.h"

#define OAUTH_URL_PARTS 5

// Adds the URL made of these parts, unless it is too long. Returns the new count.
size_t oauth_url_add(const char *out[OAUTH_URLS_MAX], size_t count, struct arena *arena,
                     const struct span parts[OAUTH_URL_PARTS]);

#endif
