// The provider chains of a configuration: the one at the top, and one for each listener with providers of its own.
//
// The set is counted. A request keeps the set that it began with, even if a reload replaces it meanwhile.
#ifndef CONFIG_CHAINS_H
#define CONFIG_CHAINS_H

#include "auth/caller/provider.h"

struct config;
struct config_listener;
struct config_chains;

// Reads what the providers need. NULL: something is missing or not valid.
struct config_chains *config_chains_new(const struct config *config, const struct provider_world *world,
                                        struct err *err) MUST_CHECK;
struct config_chains *config_chains_ref(struct config_chains *chains);
void config_chains_unref(struct config_chains *chains);

// The chain of a listener of `config`, whose listeners and providers must be those that the chains were made from.
// `listener` NULL: the chain at the top.
struct provider_chain *config_chains_of(const struct config_chains *chains, const struct config *config,
                                        const struct config_listener *listener);
// The chains by number, each once. NULL: past the last one.
struct provider_chain *config_chains_at(const struct config_chains *chains, size_t i);

#endif
