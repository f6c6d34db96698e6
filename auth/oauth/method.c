// Owns the names of the ways in which a client authenticates at a token endpoint.
#include "auth/oauth/oauth.h"

static const char *const method_names[OAUTH_METHODS] = {
    [OAUTH_METHOD_NONE] = "none",
    [OAUTH_METHOD_POST] = "client_secret_post",
    [OAUTH_METHOD_BASIC] = "client_secret_basic",
    [OAUTH_METHOD_KEY] = "private_key_jwt",
};

const char *oauth_method_text(enum oauth_method method) { return method_names[method]; }

bool oauth_method_parse(const char *text, enum oauth_method *out)
{
    for (int i = 0; text && i < OAUTH_METHODS; i++)
        if (strcmp(text, method_names[i]) == 0) {
            *out = (enum oauth_method)i;
            return true;
        }
    return false;
}
