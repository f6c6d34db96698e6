// The part of the configuration that the faces need, without that of the gate and the stores.
#ifndef CONFIG_FRONT_H
#define CONFIG_FRONT_H

#include "config/limits.h"
#include "config/listener.h"

struct config_front {
    const struct config_limits *limits;
    const struct config_timeouts *timeouts;
    const char *public_url;  // or NULL
    char *const *allowed_hosts;
    char *const *allowed_origins;
};

const struct config *config_ref(const struct config *config);
void config_unref(const struct config *config);

struct config_front config_front(const struct config *config);
const struct option_items *config_front_listeners(const struct config *config);  // struct config_listener
// A path of the configuration, relative to its file. The caller frees it.
char *config_file(const struct config *config, const char *path);

#endif
