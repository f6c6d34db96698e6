// The provider `none`.
#ifndef AUTH_PROVIDER_NONE_H
#define AUTH_PROVIDER_NONE_H

#include "auth/provider.h"

enum provider_verdict provider_none(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                    struct identity **out);

#endif
