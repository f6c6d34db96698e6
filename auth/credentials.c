// Owns reading the Authorization value.
#include "auth/credentials.h"
#include <strings.h>

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
