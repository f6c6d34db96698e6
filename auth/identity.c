// Owns comparing identities.
#include "auth/identity.h"
#include <string.h>

bool identity_same(const struct identity *a, const struct identity *b)
{
    return a->proof == b->proof && strcmp(a->tenant, b->tenant) == 0 && strcmp(a->provider, b->provider) == 0 &&
           strcmp(a->subject, b->subject) == 0;
}
