// The provider `forwarded-user`.
#ifndef AUTH_PROVIDER_FORWARDED_H
#define AUTH_PROVIDER_FORWARDED_H

#include "auth/caller/provider.h"

bool provider_forwarded_check(const struct provider_config *config, const struct option_place *place, struct err *err);
void *provider_forwarded_open(const struct provider_config *config, const struct provider_world *world,
                              struct err *err);
void provider_forwarded_close(void *state);
enum provider_verdict provider_forwarded_inspect(void *state, const struct credentials *credentials);
enum provider_verdict provider_forwarded(void *state, const struct credentials *credentials, struct provider_wait *wait,
                                         struct identity **out);
bool provider_forwarded_is_proxy(void *state, const struct peer *peer);
bool provider_forwarded_relays(void *state, const struct credentials *credentials);
size_t provider_forwarded_headers(void *state, const char **names, size_t first);

#endif
