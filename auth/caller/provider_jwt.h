// The provider `jwt`.
#ifndef AUTH_PROVIDER_JWT_H
#define AUTH_PROVIDER_JWT_H

#include "auth/caller/provider.h"

bool provider_jwt_check(const struct provider_config *config, const struct option_place *place, struct err *err);
void *provider_jwt_open(const struct provider_config *config, const struct provider_world *world, struct err *err);
void provider_jwt_close(void *state);
enum provider_verdict provider_jwt(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                   struct identity **out);
void provider_jwt_health(void *state, struct provider_health *out);

#endif
