// Owns the view of the configuration that the faces have.
#include "config/front.h"
#include "config/config.h"

struct config_front config_front(const struct config *config)
{
    return (struct config_front){.limits = &config->limits,
                                 .timeouts = &config->timeouts,
                                 .public_url = config->public_url,
                                 .allowed_hosts = config->allowed_hosts,
                                 .allowed_origins = config->allowed_origins};
}

const struct option_items *config_front_listeners(const struct config *config) { return &config->listen; }
