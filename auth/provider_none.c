// Owns the provider `none`: whoever comes over loopback or our own pipe is "anonymous".
#include "provider_none.h"

enum provider_verdict provider_none(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                    struct identity **out)
{
    (void)wait;
    (void)state;
    if (!credentials->local || credentials->authorization.at)
        return PROVIDER_REJECT;  // a credential that nobody took is not the same as none
    *out = identity_new(IDENTITY_ANONYMOUS, "default", "none", "anonymous");
    return PROVIDER_ACCEPT;
}
