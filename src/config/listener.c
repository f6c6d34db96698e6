// Owns listeners: their option rows, their permitted addresses, and the providers that apply to each.
#include "base/mem.h"
#include "loop/unix_socket.h"
#include "tables.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

const char *config_listener_unix_path(const char *address)
{
    return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL;
}

#define AT(member) offsetof(struct config_tls, member)
static const struct option tls_rows[] = {
    {.name = "certificate",
     .type = OPTION_STRING,
     .offset = AT(certificate),
     .help = "PEM file with the certificate and its intermediate certificates, relative to this file. Read again "
             "when it changes."},
    {.name = "key",
     .type = OPTION_STRING,
     .offset = AT(key),
     .help = "PEM file with the private key of the certificate."},
    {.name = "client_ca",
     .type = OPTION_STRING,
     .offset = AT(client_ca),
     .help = "PEM file with the certificate authorities that may issue client certificates of callers."},
    {0},
};
#undef AT
static const struct option_table tls_options = {"TLS of a listener (listen[].tls)", sizeof(struct config_tls), tls_rows,
                                                NULL};

static bool is_mode(const char *text)
{
    size_t len = strlen(text);
    return len >= 3 && len <= 4 && strspn(text, "01234567") == len && (len == 3 || text[0] == '0');
}

static bool check_listener(void *object, const struct option_place *place, struct err *err)
{
    const struct config_listener *listener = object;
    const struct config_tls *tls = &listener->tls;
    bool local = config_listener_unix_path(listener->address) != NULL,
         any = tls->certificate || tls->key || tls->client_ca;
    if (listener->mode && !local)
        return err_set(err, ERR_CONFIG, "%s: %s/mode: applies only to a unix socket; remove it", place->file,
                       place->path);
    if (listener->mode && !is_mode(listener->mode))
        return err_set(err, ERR_CONFIG, "%s: %s/mode: write the permissions in octal, such as \"0660\"", place->file,
                       place->path);
    if (any && local)
        return err_set(err, ERR_CONFIG, "%s: %s/tls: not possible on a unix socket; use `mode` to limit access",
                       place->file, place->path);
    if (any && (!tls->certificate || !tls->key))
        return err_set(err, ERR_CONFIG, "%s: %s/tls/%s: missing; TLS needs a certificate and its key", place->file,
                       place->path, tls->certificate ? "key" : "certificate");
    return true;
}

#define AT(member) offsetof(struct config_listener, member)
static const struct option listener_rows[] = {
    {.name = "address",
     .type = OPTION_STRING,
     .offset = AT(address),
     .fallback = "\"127.0.0.1:8080\"",
     .help = "Address and port, such as `127.0.0.1:8080` or `[::1]:8080`, or `unix:/path/to.sock`. Port 0 selects a "
             "free port."},
    {.name = "mode",
     .type = OPTION_STRING,
     .offset = AT(mode),
     .help = "Permissions of a unix socket, such as `0660`; `0600` if absent."},
    {.name = "tls",
     .type = OPTION_OBJECT,
     .offset = AT(tls),
     .sub = &tls_options,
     .help = "Serve HTTPS (TLS 1.2 or later) instead of HTTP."},
    {.name = "auth",
     .type = OPTION_OBJECT,
     .offset = AT(auth),
     .sub = &provider_config_listener_options,
     .help = "How callers are authenticated at this listener; the top-level `auth` if absent."},
    {0},
};
#undef AT
const struct option_table config_listener_options = {"A listener (listen[])", sizeof(struct config_listener),
                                                     listener_rows, check_listener};

const struct config_listener *config_listener_find(const struct config *config, const char *address)
{
    const struct config_listener *listeners = config->listen.at, *equal = NULL;
    for (size_t i = 0; i < config->listen.count; i++) {
        if (listeners[i].address == address)
            return &listeners[i];
        if (!equal && strcmp(listeners[i].address, address) == 0)
            equal = &listeners[i];
    }
    return equal;
}

const struct auth_config *config_listener_auth(const struct config *config, const struct config_listener *listener)
{
    return listener && listener->auth.providers.at ? &listener->auth : &config->auth;
}

bool config_listener_proves(const struct config *config)
{
    const struct config_listener *listeners = config->listen.at;
    bool proves = provider_config_proves(&config->auth);
    for (size_t i = 0; !proves && i < config->listen.count; i++)
        proves = provider_config_proves(config_listener_auth(config, &listeners[i]));
    return proves;
}

bool config_listener_is_loopback(const char *address)
{
    struct in_addr parsed;
    const char *colon = strrchr(address, ':');
    char *host = mem_copy(address, colon ? (size_t)(colon - address) : 0);
    bool local = strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
                 (inet_pton(AF_INET, host, &parsed) == 1 && ntohl(parsed.s_addr) >> 24 == 127);
    free(host);
    return local;
}

static bool is_port(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len <= 5 && strspn(text, "0123456789") == len && strtol(text, NULL, 10) <= 65535;
}

bool config_listener_may_listen(const struct config *config, const char *address, const struct option_place *place,
                                struct err *err)
{
    const char *colon = strrchr(address, ':'), *path = config_listener_unix_path(address);
    const struct config_listener *listener = config_listener_find(config, address);
    const struct auth_config *auth = config_listener_auth(config, listener);
    if (path && (path[0] != '/' || path[strlen(path) - 1] == '/' || strlen(path) > UNIX_SOCKET_PATH_MAX))
        return err_set(err, ERR_CONFIG, "%s: %s: write unix:/PATH, with an absolute path of at most %d characters",
                       place->file, place->path, UNIX_SOCKET_PATH_MAX);
    if (path)
        return true;
    if (!colon || colon == address || !is_port(colon + 1))
        return err_set(err, ERR_CONFIG, "%s: %s: write ADDRESS:PORT, such as 127.0.0.1:8080; a port is at most 65535",
                       place->file, place->path);
    if (config_listener_is_loopback(address) || provider_config_proves(auth) || provider_config_is_open(auth))
        return true;
    return err_set(
        err, ERR_CONFIG,
        "%s: %s: %s is not loopback, and no provider in %s authenticates callers; listen on 127.0.0.1 and put an "
        "authenticating proxy in front",
        place->file, place->path, address, auth == &config->auth ? "/auth/providers" : "the listener's auth/providers");
}

bool config_listener_check_all(const struct config *config, const struct option_place *place, struct err *err)
{
    const struct config_listener *listeners = config->listen.at;
    for (size_t i = 0; i < config->listen.count; i++) {
        char path[64];
        snprintf(path, sizeof path, "/listen/%zu/address", i);
        struct option_place at = {.file = place->file, .path = path};
        bool unknown = place->unset && strstr(listeners[i].address, "${");
        if (!unknown && !config_listener_may_listen(config, listeners[i].address, &at, err))
            return false;
    }
    return true;
}

// Callers are distinguished by the name of their provider, so one name must mean the same provider at all listeners.
bool config_listener_check_names(const struct config *config, const struct option_place *place, struct err *err)
{
    const struct config_listener *listeners = config->listen.at;
    for (size_t i = 0; i < config->listen.count; i++) {
        char path[64];
        snprintf(path, sizeof path, "/listen/%zu/auth", i);
        struct option_place at = {.file = place->file, .path = path};
        const struct auth_config *auth = &listeners[i].auth;
        bool ok = provider_config_names_agree(&config->auth, auth, &at, err);
        for (size_t k = 0; ok && k < i; k++)
            ok = provider_config_names_agree(&listeners[k].auth, auth, &at, err);
        if (!ok)
            return false;
    }
    return true;
}
