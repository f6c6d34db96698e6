// The provider chains of a configuration: one at the top, and one of each listener that has providers of its own.
//
// The set is counted: a request that began with one keeps it, whatever is in force when it ends.
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

// Who may come in at a listener of `config`, whose listeners and providers are those that the chains were made of; NULL:
// anywhere else.
struct provider_chain *config_chains_of(const struct config_chains *chains, const struct config *config,
                                        const struct config_listener *listener);
// The chains by number, each once; NULL: there are no more.
struct provider_chain *config_chains_at(const struct config_chains *chains, size_t i);

#endif
