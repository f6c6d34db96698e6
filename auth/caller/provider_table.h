// The table of providers, with the functions that the chain calls.
#ifndef AUTH_CALLER_PROVIDER_TABLE_H
#define AUTH_CALLER_PROVIDER_TABLE_H

#include "auth/caller/provider.h"

enum provider_type { PROVIDER_NONE, PROVIDER_BEARER, PROVIDER_FORWARDED, PROVIDER_JWT, PROVIDER_TYPES };

struct provider {
    bool proves;  // it authenticates the caller, rather than accepting every request
    bool many;    // several in one chain: each finds out whether a credential is its own (PROVIDER_FOREIGN)
    bool (*check)(const struct provider_config *config, const struct option_place *place, struct err *err);
    // Returns the state that is passed to the other functions.
    void *(*open)(const struct provider_config *config, const struct provider_world *world, struct err *err);
    void (*close)(void *state);
    // Called for every request before any provider authenticates it: PASS or MALFORMED.
    enum provider_verdict (*inspect)(void *state, const struct credentials *credentials);
    enum provider_verdict (*authenticate)(void *state, const struct credentials *credentials,
                                          struct provider_wait *wait, struct identity **out);
    // The headers that it reads; `first` is their position in the list. Returns how many.
    size_t (*headers)(void *state, const char **names, size_t first);
    bool (*poll)(void **state, struct err *err);
    bool (*stands)(void *state, const struct identity *identity);
    bool (*is_proxy)(void *state, const struct peer *peer);              // its address is that of a trusted proxy
    bool (*relays)(void *state, const struct credentials *credentials);  // from a proxy that proved itself
    void (*health)(void *state, struct provider_health *out);
};

extern const struct provider provider_table[PROVIDER_TYPES];
extern const char *const provider_types[];  // provider.c: their names, NULL at the end

#endif
