// Owns reading what a caller showed.
#include "auth/credentials.h"
#include <strings.h>

bool credentials_shown(const struct credentials *credentials)
{
    for (size_t i = 0; i < CREDENTIAL_HEADERS_MAX; i++)
        if (credentials->headers[i].count)
            return true;
    return credentials->authorization.at != NULL;
}

struct span credentials_bearer(const struct credentials *credentials)
{
    static const char scheme[] = "bearer ";
    size_t len = sizeof scheme - 1;
    struct span value = credentials->authorization;
    if (!value.at || value.len <= len || strncasecmp(value.at, scheme, len) != 0)
        return (struct span){0};
    value = span_after(value, len);
    while (value.len && value.at[0] == ' ')
        value = span_after(value, 1);
    return value;
}
