// A listener in the configuration: its address, TLS settings and providers.
#ifndef CONFIG_LISTENER_H
#define CONFIG_LISTENER_H

#include "auth/caller/provider.h"

struct config;

// Paths of PEM files. Without a certificate, the listener has no TLS.
struct config_tls {
    char *certificate;
    char *key;
    char *client_ca;
};

struct config_listener {
    char *address;  // "127.0.0.1:8080", "unix:/path"
    char *mode;     // of a unix socket, octal
    struct config_tls tls;
    struct auth_config auth;  // its own; see config_listener_auth()
};

// "127.0.0.1:8080", "localhost:0" and "[::1]:8080" are local; nothing else is.
bool config_listener_is_loopback(const char *address);
const char *config_listener_unix_path(const char *address);  // of "unix:/path"; NULL for any other address
// The listener of this address: by identity of the pointer, else the first with an equal text (--listen), else NULL.
// The text alone is not enough, since port 0 may be listed several times.
const struct config_listener *config_listener_find(const struct config *config, const char *address);
// Whether the gateway may listen there: on a unix socket, or on ADDRESS:PORT, which must be loopback unless a provider
// of the listener authenticates callers.
bool config_listener_may_listen(const struct config *config, const char *address, const struct option_place *place,
                                struct err *err) MUST_CHECK;

#endif
