// Owns the provider `none`: every caller over loopback or the gateway's own pipe is "anonymous".
#include "provider_none.h"
#include "base/mem.h"
#include <stdlib.h>

struct none {
    struct identity *anonymous;
    bool open;  // beyond loopback too
};

void *provider_none_open(const struct provider_config *config, const struct provider_world *world, struct err *err)
{
    (void)world;
    (void)err;
    struct none *none = mem_new(struct none);
    none->anonymous = identity_new(IDENTITY_ANONYMOUS, "default", provider_name(config), "anonymous");
    none->open = config->open;
    return none;
}

void provider_none_close(void *state)
{
    struct none *none = state;
    identity_unref(none->anonymous);
    free(none);
}

enum provider_verdict provider_none(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                    struct identity **out)
{
    (void)wait;
    const struct none *none = state;
    if ((!credentials->local && !none->open) || credentials->authorization.at)
        return PROVIDER_REJECT;  // a credential that no provider accepted must not become anonymous
    *out = identity_ref(none->anonymous);
    return PROVIDER_ACCEPT;
}
