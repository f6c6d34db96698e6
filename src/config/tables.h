// The option tables of the parts of the configuration, and the checks that need more than one part.
#ifndef CONFIG_TABLES_H
#define CONFIG_TABLES_H

#include "config/config.h"
#include "config/diff.h"

extern const struct option_table config_listener_options;
bool config_listener_proves(const struct config *config);  // does a provider of any of them authenticate callers?
bool config_listener_check_all(const struct config *config, const struct option_place *place,
                               struct err *err) MUST_CHECK;
bool config_listener_check_names(const struct config *config, const struct option_place *place,
                                 struct err *err) MUST_CHECK;

extern const struct option_table config_limits_options, config_limits_timeouts, config_limits_of_tenant;
// limits.memory and limits.identity_memory.
bool config_limits_check_memory(const struct config *config, const char *file, struct err *err) MUST_CHECK;
// The tenants from `first` on. `file` NULL: each tenant has a file of its own in `folder`.
bool config_limits_check_tenants(const struct config *config, size_t first, const char *file, const char *folder,
                                 struct err *err) MUST_CHECK;

// Refuses rows about a server that does not exist, and rows about the same calls as an earlier row.
bool config_rates_check(const struct option_items *rates, const struct option_items *servers,
                        const struct option_place *place, struct err *err) MUST_CHECK;

extern const struct option_table config_tenant_options;
bool config_tenant_check_prefixes(const struct option_items *items, const struct option_place *place,
                                  struct err *err) MUST_CHECK;

extern const struct option_table config_hosted_options;
// The pages of `hosted` are at public_url, which must be https, or http to this host. Without public_url, they do not
// exist.
bool config_hosted_url_ok(const struct config *config);

// The providers that apply to a listener: its own list, or the one at the top. NULL: no listener of the file.
const struct auth_config *config_listener_auth(const struct config *config, const struct config_listener *listener);
// Does an option at this JSON pointer, or below it, differ?
bool config_diff_touches(const struct config_diff *diff, const char *path);

#endif
