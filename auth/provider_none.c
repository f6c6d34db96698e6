// Owns the provider `none`: whoever comes over loopback or our own pipe is "anonymous".
#include "provider_none.h"
#include <string.h>

enum provider_verdict provider_none(const struct credentials *credentials, struct identity *out)
{
    if (!credentials->local)
        return PROVIDER_REJECT;
    *out =
        (struct identity){.proof = IDENTITY_UNPROVEN, .tenant = "default", .provider = "none", .subject = "anonymous"};
    return PROVIDER_ACCEPT;
}
