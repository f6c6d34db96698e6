// The provider `none`.
#ifndef AUTH_PROVIDER_NONE_H
#define AUTH_PROVIDER_NONE_H

#include "auth/caller/provider.h"

void *provider_none_open(const struct provider_config *config, const struct provider_world *world, struct err *err);
void provider_none_close(void *state);
enum provider_verdict provider_none(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                    struct identity **out);

#endif
