// The table of providers: what the chain asks of each.
#ifndef AUTH_CALLER_PROVIDER_TABLE_H
#define AUTH_CALLER_PROVIDER_TABLE_H

#include "auth/caller/provider.h"

enum provider_type { PROVIDER_NONE, PROVIDER_BEARER, PROVIDER_FORWARDED, PROVIDER_JWT, PROVIDER_TYPES };

struct provider {
    bool proves;  // who calls, rather than that anybody may
    bool many;    // several in one chain: each says of a credential whether it is its own (PROVIDER_FOREIGN)
    bool (*check)(const struct provider_config *config, const struct option_place *place, struct err *err);
    // What it keeps between calls.
    void *(*open)(const struct provider_config *config, const struct provider_world *world, struct err *err);
    void (*close)(void *state);
    // Asked of every request before the chain, whoever would take the credential: PASS or MALFORMED.
    enum provider_verdict (*inspect)(void *state, const struct credentials *credentials);
    enum provider_verdict (*authenticate)(void *state, const struct credentials *credentials,
                                          struct provider_wait *wait, struct identity **out);
    // Which headers it wants to see; gets where in the list they begin, returns how many.
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
