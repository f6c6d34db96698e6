// The provider `bearer`.
#ifndef AUTH_PROVIDER_BEARER_H
#define AUTH_PROVIDER_BEARER_H

#include "auth/caller/provider.h"

void *provider_bearer_open(const struct provider_config *config, const struct provider_world *world, struct err *err);
void provider_bearer_close(void *state);
enum provider_verdict provider_bearer(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                      struct identity **out);
bool provider_bearer_poll(void **state, struct err *err);
bool provider_bearer_stands(void *state, const struct identity *identity);

#endif
