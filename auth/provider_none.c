// Owns the provider `none`: whoever comes over loopback or our own pipe is "anonymous".
#include "provider_none.h"

enum provider_verdict provider_none(const struct credentials *credentials, struct identity **out)
{
    if (!credentials->local)
        return PROVIDER_REJECT;
    *out = identity_new(IDENTITY_ANONYMOUS, "default", "none", "anonymous");
    return PROVIDER_ACCEPT;
}
