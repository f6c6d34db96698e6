// Owns the top of the configuration: its rows, its checks, and where the file is found.
#include "gate/config.h"
#include "auth/trust.h"
#include "base/log.h"
#include "base/mem.h"
#include "catalog/profile.h"
#include "config_servers.h"
#include "limit.h"
#include "tenants_d.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const levels[] = {"debug", "info", "warn", "error", "off", NULL};
static const char *const formats[] = {"text", "json", NULL};

#define UNIX_PATH_MAX 107
#define MIB (1LL << 20)
#define MEMORY_MAX (1LL << 50)
#define MINUTE 60000LL
#define HOUR (60 * MINUTE)

#define AT(member) offsetof(struct config_tls, member)
static const struct option tls_rows[] = {
    {.name = "certificate",
     .type = OPTION_STRING,
     .offset = AT(certificate),
     .help = "PEM file with the certificate and those between it and its authority, relative to this file. Read again "
             "when it changes."},
    {.name = "key", .type = OPTION_STRING, .offset = AT(key), .help = "PEM file with its private key."},
    {.name = "client_ca",
     .type = OPTION_STRING,
     .offset = AT(client_ca),
     .help = "PEM file with the authorities whose certificates callers may show."},
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
    bool local = config_unix_path(listener->address) != NULL, any = tls->certificate || tls->key || tls->client_ca;
    if (listener->mode && !local)
        return err_set(err, ERR_CONFIG, "%s: %s/mode: only for a unix socket", place->file, place->path);
    if (listener->mode && !is_mode(listener->mode))
        return err_set(err, ERR_CONFIG, "%s: %s/mode: write the permissions in octal, such as \"0660\"", place->file,
                       place->path);
    if (any && local)
        return err_set(err, ERR_CONFIG, "%s: %s/tls: not on a unix socket; its mode says who may connect", place->file,
                       place->path);
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
     .help = "Address and port, as `127.0.0.1:8080` or `[::1]:8080`; port 0 picks a free one. Or "
             "`unix:/path/to.sock`."},
    {.name = "mode",
     .type = OPTION_STRING,
     .offset = AT(mode),
     .help = "Permissions of a unix socket, such as `0660`; `0600` if absent."},
    {.name = "tls",
     .type = OPTION_OBJECT,
     .offset = AT(tls),
     .sub = &tls_options,
     .help = "HTTPS instead of HTTP, TLS 1.2 or later."},
    {.name = "auth",
     .type = OPTION_OBJECT,
     .offset = AT(auth),
     .sub = &auth_listener_options,
     .help = "Who may come in here; `auth` at the top if absent."},
    {0},
};
#undef AT
static const struct option_table listener_options = {"A listener (listen[])", sizeof(struct config_listener),
                                                     listener_rows, check_listener};

#define AT(member) offsetof(struct config_log, member)
static const struct option log_rows[] = {
    {.name = "level",
     .type = OPTION_ENUM,
     .offset = AT(level),
     .fallback = "\"info\"",
     .choices = levels,
     .help = "The least that is logged."},
    {.name = "format",
     .type = OPTION_ENUM,
     .offset = AT(format),
     .fallback = "\"text\"",
     .choices = formats,
     .help = "Lines for people or for machines, on standard error."},
    {0},
};
#undef AT
static const struct option_table log_options = {"Log (log)", sizeof(struct config_log), log_rows, NULL};

#define AT(member) offsetof(struct config_limits, member)
static const struct option limit_rows[] = {
    {.name = "max_header",
     .type = OPTION_SIZE,
     .offset = AT(max_header),
     .fallback = "\"8KiB\"",
     .min = 2048,
     .max = 32768,
     .help =
         "Largest request line with headers that a caller may send; more is answered 431. Each connection takes 4 KiB "
         "more than this in memory."},
    {.name = "max_body",
     .type = OPTION_SIZE,
     .offset = AT(max_body),
     .fallback = "\"64MiB\"",
     .min = 1024,
     .max = 1024 * MIB,
     .help = "Largest message a caller may send; more is answered 413."},
    {.name = "max_message",
     .type = OPTION_SIZE,
     .offset = AT(max_message),
     .fallback = "\"80MiB\"",
     .min = 1024,
     .max = 1024 * MIB,
     .help = "Largest message a server may send."},
    {.name = "memory",
     .type = OPTION_SIZE,
     .offset = AT(memory),
     .fallback = "\"1GiB\"",
     .min = 0,
     .max = MEMORY_MAX,
     .help = "Bytes held for all callers: bodies, calls in flight, answers that are being read or wait for their "
             "caller, and streams. When they are used up, callers are answered 429 `memory_limit`, and reading from "
             "servers pauses. At least `max_message` plus twice `max_body`; 0: no bound."},
    {.name = "identity_memory",
     .type = OPTION_SIZE,
     .offset = AT(identity_memory),
     .fallback = "\"256MiB\"",
     .min = 0,
     .max = MEMORY_MAX,
     .help = "The same for one identity, unless it is anonymous, and for all requests that are not authenticated yet. "
             "At least `max_message` plus twice `max_body`; 0: no bound."},
    {.name = "connections",
     .type = OPTION_INT,
     .offset = AT(connections),
     .fallback = "4096",
     .min = 1,
     .max = 1000000,
     .help = "Open connections for each listener. When there are as many, the oldest one without an authenticated "
             "request is "
             "closed for a new one, or else the one that has been idle for the longest time."},
    {.name = "unauthenticated_connections",
     .type = OPTION_INT,
     .offset = AT(unauthenticated_connections),
     .fallback = "1024",
     .min = 1,
     .max = 1000000,
     .help = "Open connections without an authenticated request for each listener and address (IPv4, or the first 64 "
             "bits of "
             "IPv6); with one more, the oldest is closed. Unix sockets and `trusted_proxies` are not counted."},
    {.name = "sessions",
     .type = OPTION_INT,
     .offset = AT(sessions),
     .fallback = "10000",
     .min = 1,
     .max = 1000000,
     .help = "Caller sessions at once; more are answered 503."},
    {.name = "identity_sessions",
     .type = OPTION_INT,
     .offset = AT(identity_sessions),
     .fallback = "256",
     .min = 1,
     .max = 1000000,
     .help = "Caller sessions of one identity at once, unless it is anonymous; more are answered 503."},
    {.name = "processes",
     .type = OPTION_INT,
     .offset = AT(processes),
     .fallback = "512",
     .min = 1,
     .max = 100000,
     .help = "Server processes at once; calls that need another one are answered 429 `process_limit`."},
    {.name = "identity_processes",
     .type = OPTION_INT,
     .offset = AT(identity_processes),
     .fallback = "64",
     .min = 1,
     .max = 100000,
     .help =
         "Server processes of one identity at once (isolation `user` or `session`), unless it is anonymous; its calls "
         "that need another one are answered 429 `process_limit`."},
    {.name = "session_calls",
     .type = OPTION_INT,
     .offset = AT(session_calls),
     .fallback = "1000",
     .min = 1,
     .max = 1000000,
     .help = "Calls in flight for each session."},
    {.name = "batch",
     .type = OPTION_INT,
     .offset = AT(batch),
     .fallback = "100",
     .min = 1,
     .max = 10000,
     .help = "Messages in one JSON-RPC batch (2025-03-26)."},
    {.name = "page_size",
     .type = OPTION_INT,
     .offset = AT(page_size),
     .fallback = "1000",
     .min = 1,
     .max = 100000,
     .help = "Items on one page of a list."},
    {.name = "stream_buffer",
     .type = OPTION_SIZE,
     .offset = AT(stream_buffer),
     .fallback = "\"8MiB\"",
     .min = 1024,
     .max = 1024 * MIB,
     .help = "What may wait for a slow caller on one stream; one that stays behind is cut off."},
    {.name = "replay_events",
     .type = OPTION_INT,
     .offset = AT(replay_events),
     .fallback = "256",
     .min = 1,
     .max = 100000,
     .help = "Events kept on each stream for resumption with Last-Event-ID."},
    {.name = "header_timeout",
     .type = OPTION_DURATION,
     .offset = AT(header_timeout_ms),
     .fallback = "10",
     .min = 100,
     .max = HOUR,
     .help = "How long a caller may take to send its headers, in all."},
    {.name = "body_timeout",
     .type = OPTION_DURATION,
     .offset = AT(body_timeout_ms),
     .fallback = "60",
     .min = 100,
     .max = HOUR,
     .help = "How long a caller may take to send a body, in all."},
    {.name = "unauthenticated_body_timeout",
     .type = OPTION_DURATION,
     .offset = AT(unauthenticated_body_timeout_ms),
     .fallback = "5",
     .min = 100,
     .max = HOUR,
     .help = "As `body_timeout`, if that is not shorter, on a connection without an authenticated request so far. "
             "Bodies of more "
             "than 16 KiB are authenticated before they are read."},
    {.name = "min_rate",
     .type = OPTION_SIZE,
     .offset = AT(min_rate),
     .fallback = "\"1KiB\"",
     .min = 1,
     .max = 1024 * MIB,
     .help = "Bytes a second that a caller must send of a body, or read of an answer or of what waits on its stream; "
             "one that "
             "is slower on average over 30 s (or half of `body_timeout`, if that is shorter) is cut off. An idle "
             "stream is not."},
    {.name = "idle_timeout",
     .type = OPTION_DURATION,
     .offset = AT(idle_timeout_ms),
     .fallback = "120",
     .min = 1000,
     .max = HOUR,
     .help = "How long a kept connection may be silent between requests."},
    {.name = "auth_failures",
     .type = OPTION_INT,
     .offset = AT(auth_failures),
     .fallback = "30",
     .min = 1,
     .max = 1000000,
     .help = "Credentials from one address that may be refused in `auth_window`; then callers from there get 429, "
             "those with an open session excepted."},
    {.name = "auth_window",
     .type = OPTION_DURATION,
     .offset = AT(auth_window_ms),
     .fallback = "60",
     .min = 1000,
     .max = 24 * HOUR,
     .help = "The time for `auth_failures`."},
    {.name = "rates",
     .type = OPTION_OBJECTS,
     .offset = AT(rates),
     .fallback = "[]",
     .sub = &limit_rate_options,
     .help = "How many calls the callers of the tenant `default` may make."},
    {0},
};
#undef AT
static const struct option_table limit_options = {"Limits (limits)", sizeof(struct config_limits), limit_rows, NULL};

#define AT(member) offsetof(struct config_timeouts, member)
static const struct option timeout_rows[] = {
    {.name = "list",
     .type = OPTION_DURATION,
     .offset = AT(list_ms),
     .fallback = "5",
     .min = 1,
     .max = HOUR,
     .help = "How long a list waits for a server that is starting or has just changed its lists; then it goes out with "
             "what is known. It counts from the start or the change."},
    {.name = "stream_after",
     .type = OPTION_DURATION,
     .offset = AT(stream_after_ms),
     .fallback = "1",
     .min = 1,
     .max = HOUR,
     .help = "A call that is not answered after this long gets an event stream, with heartbeats."},
    {.name = "heartbeat",
     .type = OPTION_DURATION,
     .offset = AT(heartbeat_ms),
     .fallback = "15",
     .min = 100,
     .max = HOUR,
     .help = "Comment lines on quiet event streams, so that proxies keep them open."},
    {.name = "retry",
     .type = OPTION_DURATION,
     .offset = AT(retry_ms),
     .fallback = "1",
     .min = 1,
     .max = HOUR,
     .help = "The reconnection time told to callers (`retry:`)."},
    {.name = "session_idle",
     .type = OPTION_DURATION,
     .offset = AT(session_idle_ms),
     .fallback = "3600",
     .min = 1000,
     .max = 168 * HOUR,
     .help = "A session without a request or an open stream for this long ends."},
    {.name = "resume",
     .type = OPTION_DURATION,
     .offset = AT(resume_ms),
     .fallback = "300",
     .min = 1000,
     .max = 24 * HOUR,
     .help = "How long a finished call's stream can still be resumed."},
    {.name = "ask",
     .type = OPTION_DURATION,
     .offset = AT(ask_ms),
     .fallback = "600",
     .min = 1000,
     .max = 24 * HOUR,
     .help = "How long a caller may take to answer a server's question (sampling, elicitation, roots)."},
    {.name = "shutdown",
     .type = OPTION_DURATION,
     .offset = AT(shutdown_ms),
     .fallback = "5",
     .min = 100,
     .max = HOUR,
     .help = "How long stopping may take in all: calls in flight, then servers."},
    {0},
};
#undef AT
static const struct option_table timeout_options = {"Timeouts (timeouts)", sizeof(struct config_timeouts), timeout_rows,
                                                    NULL};

static const struct option tenant_limit_rows[] = {
    {.name = "rates",
     .type = OPTION_OBJECTS,
     .offset = offsetof(struct config_tenant_limits, rates),
     .fallback = "[]",
     .sub = &limit_rate_options,
     .help = "How many calls its callers may make; those at the top are not for it."},
    {.name = "sessions",
     .type = OPTION_INT,
     .offset = offsetof(struct config_tenant_limits, sessions),
     .fallback = "2500",
     .min = 1,
     .max = 1000000,
     .help = "Its caller sessions at once, within those of the top; more are answered 503."},
    {.name = "processes",
     .type = OPTION_INT,
     .offset = offsetof(struct config_tenant_limits, processes),
     .fallback = "256",
     .min = 1,
     .max = 100000,
     .help = "Its server processes at once, within those of the top; calls that need another one are answered 429 "
             "`process_limit`."},
    {.name = "memory",
     .type = OPTION_SIZE,
     .offset = offsetof(struct config_tenant_limits, memory),
     .fallback = "\"512MiB\"",
     .min = 0,
     .max = MEMORY_MAX,
     .help = "Bytes held for its callers, within those of the top; see `limits.memory`."},
    {0},
};
static const struct option_table tenant_limit_options = {"Limits of a tenant (tenants.NAME.limits)",
                                                         sizeof(struct config_tenant_limits), tenant_limit_rows, NULL};

#define AT(member) offsetof(struct config_tenant, member)
static const struct option tenant_rows[] = {
    {.name = "mcpServers",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(servers),
     .fallback = "{}",
     .sub = &server_options,
     .help = "The servers of this tenant; it sees no others."},
    {.name = "profiles",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(profiles),
     .fallback = "{}",
     .sub = &profile_options,
     .help = "The profiles of this tenant, by name."},
    {.name = "policy",
     .type = OPTION_STRING,
     .offset = AT(policy),
     .help = "Its own policy file or folder; the one at the top if absent."},
    {.name = "limits",
     .type = OPTION_OBJECT,
     .offset = AT(limits),
     .sub = &tenant_limit_options,
     .help = "Its own limits."},
    {0},
};
#undef AT

static bool check_prefixes(const struct option_items *items, const struct option_place *place, struct err *err)
{
    const struct server *servers = items->at;
    for (size_t i = 0; i < items->count; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = servers[i].prefix ? servers[i].prefix : servers[i].name;
            const char *b = servers[k].prefix ? servers[k].prefix : servers[k].name;
            if (*a && strcmp(a, b) == 0)
                return err_set(err, ERR_CONFIG, "%s: %s/mcpServers/%s/prefix: \"%s\" is used by \"%s\" already",
                               place->file, place->path, servers[i].name, a, servers[k].name);
        }
    return true;
}

static bool check_tenant(void *object, const struct option_place *place, struct err *err)
{
    const struct config_tenant *tenant = object;
    size_t len = strlen(tenant->name);
    if (len == 0 || len > 64 || strcmp(tenant->name, "default") == 0 || strpbrk(tenant->name, "/ "))
        return err_set(err, ERR_CONFIG,
                       "%s: %s: a tenant's name has 1 to 64 characters without '/' and blanks, and is not \"default\", "
                       "which is the top of the file",
                       place->file, *place->path ? place->path : "/");
    return check_prefixes(&tenant->servers, place, err) &&
           profile_check_all(&tenant->profiles, &tenant->servers, place, err) &&
           limit_check(&tenant->limits.rates, &tenant->servers, place, err);
}

static const struct option_table tenant_options = {"A tenant (tenants.NAME)", sizeof(struct config_tenant), tenant_rows,
                                                   check_tenant};

#define AT(member) offsetof(struct config, member)
static const struct option rows[] = {
    {.name = "listen",
     .type = OPTION_OBJECTS,
     .offset = AT(listen),
     .sub = &listener_options,
     .help = "Where HTTP is served; 127.0.0.1:8080 if absent. Beyond loopback and unix sockets a provider that proves "
             "identities is needed."},
    {.name = "public_url",
     .type = OPTION_STRING,
     .offset = AT(public_url),
     .help = "The URL under which callers reach the gateway; its host is accepted in Host and Origin."},
    {.name = "allowed_hosts",
     .type = OPTION_STRINGS,
     .offset = AT(allowed_hosts),
     .help = "Further values of Host that are served, beside loopback names and the host of public_url."},
    {.name = "allowed_origins",
     .type = OPTION_STRINGS,
     .offset = AT(allowed_origins),
     .help = "Further Origins (scheme://host:port) that may call from a browser."},
    {.name = "auth",
     .type = OPTION_OBJECT,
     .offset = AT(auth),
     .sub = &auth_options,
     .help = "Who may come in, at the listeners that do not say so themselves and on standard input."},
    {.name = "policy",
     .type = OPTION_STRING,
     .offset = AT(policy),
     .help = "Policy file, or folder of them, relative to this file. Needed with a provider that proves who calls; "
             "without one everybody may do everything."},
    {.name = "mcpServers",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(servers),
     .fallback = "{}",
     .sub = &server_options,
     .help = "The servers behind the gateway, by name."},
    {.name = "profiles",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(profiles),
     .fallback = "{}",
     .sub = &profile_options,
     .help = "Selections of servers and tools with names of their own, each at `/mcp/NAME`; `/mcp` has everything."},
    {.name = "tenants",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(tenants),
     .fallback = "{}",
     .sub = &tenant_options,
     .help = "Tenants beside `default`, by name; more of them, one in a file, in `tenants.d/NAME.json` beside this "
             "file. An identity of a tenant that is in neither is not let in."},
    {.name = "prefix",
     .type = OPTION_BOOL,
     .offset = AT(prefix),
     .fallback = "true",
     .help = "Put the server's name before tool and prompt names, and wrap resource URIs. Without, names and URIs stay "
             "as the servers have them."},
    {.name = "separator",
     .type = OPTION_STRING,
     .offset = AT(separator),
     .fallback = "\"__\"",
     .help = "Between prefix and name."},
    {.name = "log", .type = OPTION_OBJECT, .offset = AT(log), .sub = &log_options, .help = "What is logged, and how."},
    {.name = "audit",
     .type = OPTION_OBJECT,
     .offset = AT(audit),
     .sub = &audit_options,
     .help = "Where every call is recorded. On when `path` or `jsonl` is given, and always with a provider that proves "
             "who calls."},
    {.name = "store",
     .type = OPTION_OBJECT,
     .offset = AT(store),
     .sub = &record_options,
     .help = "Where users' tokens for servers are kept."},
    {.name = "vault",
     .type = OPTION_OBJECT,
     .offset = AT(vault),
     .sub = &vault_options,
     .help = "The keys those tokens are sealed with."},
    {.name = "hosted",
     .type = OPTION_OBJECT,
     .offset = AT(hosted),
     .sub = &hosted_options,
     .help = "How users connect their accounts at servers with auth mode `per_user`: see docs/oauth.md."},
    {.name = "limits",
     .type = OPTION_OBJECT,
     .offset = AT(limits),
     .sub = &limit_options,
     .help = "Bounds on everything."},
    {.name = "timeouts",
     .type = OPTION_OBJECT,
     .offset = AT(timeouts),
     .sub = &timeout_options,
     .help = "How long things may take."},
    {0},
};
#undef AT

const char *config_unix_path(const char *address) { return strncmp(address, "unix:", 5) == 0 ? address + 5 : NULL; }

const struct config_listener *config_listener(const struct config *config, const char *address)
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

const struct auth_config *config_auth(const struct config *config, const struct config_listener *listener)
{
    return listener && listener->auth.providers.at ? &listener->auth : &config->auth;
}

bool config_proves(const struct config *config)
{
    const struct config_listener *listeners = config->listen.at;
    bool proves = provider_proves(&config->auth);
    for (size_t i = 0; !proves && i < config->listen.count; i++)
        proves = provider_proves(config_auth(config, &listeners[i]));
    return proves;
}

bool config_address_is_loopback(const char *address)
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

bool config_may_listen(const struct config *config, const char *address, const struct option_place *place,
                       struct err *err)
{
    const char *colon = strrchr(address, ':'), *path = config_unix_path(address);
    const struct config_listener *listener = config_listener(config, address);
    const struct auth_config *auth = config_auth(config, listener);
    if (path && (path[0] != '/' || path[strlen(path) - 1] == '/' || strlen(path) > UNIX_PATH_MAX))
        return err_set(err, ERR_CONFIG, "%s: %s: write unix:/PATH, from the root and with at most %d characters",
                       place->file, place->path, UNIX_PATH_MAX);
    if (path)
        return true;
    if (!colon || colon == address || !is_port(colon + 1))
        return err_set(err, ERR_CONFIG, "%s: %s: write ADDRESS:PORT, such as 127.0.0.1:8080; a port is at most 65535",
                       place->file, place->path);
    if (config_address_is_loopback(address) || provider_proves(auth) || provider_is_open(auth))
        return true;
    return err_set(err, ERR_CONFIG,
                   "%s: %s: %s is not loopback, and no provider in %s proves who calls; listen on 127.0.0.1 and put an "
                   "authenticating proxy in front",
                   place->file, place->path, address,
                   auth == &config->auth ? "/auth/providers" : "the listener's auth/providers");
}

static bool check_separator(const struct config *config, const struct option_place *place, struct err *err)
{
    size_t len = strlen(config->separator);
    if (len >= 1 && len <= 8 && strspn(config->separator, "_-./") == len)
        return true;
    return err_set(err, ERR_CONFIG, "%s: %s/separator: 1 to 8 of the characters _ - . /", place->file, place->path);
}

static bool check_listeners(const struct config *config, const struct option_place *place, struct err *err)
{
    const struct config_listener *listeners = config->listen.at;
    for (size_t i = 0; i < config->listen.count; i++) {
        char path[64];
        snprintf(path, sizeof path, "/listen/%zu/address", i);
        struct option_place at = {.file = place->file, .path = path};
        bool unknown = place->unset && strstr(listeners[i].address, "${");
        if (!unknown && !config_may_listen(config, listeners[i].address, &at, err))
            return false;
    }
    return true;
}

// Callers are told apart by the name of who vouches for them, whichever way they came.
static bool check_provider_names(const struct config *config, const struct option_place *place, struct err *err)
{
    const struct config_listener *listeners = config->listen.at;
    for (size_t i = 0; i < config->listen.count; i++) {
        char path[64];
        snprintf(path, sizeof path, "/listen/%zu/auth", i);
        struct option_place at = {.file = place->file, .path = path};
        const struct auth_config *auth = &listeners[i].auth;
        bool ok = provider_names_agree(&config->auth, auth, &at, err);
        for (size_t k = 0; ok && k < i; k++)
            ok = provider_names_agree(&listeners[k].auth, auth, &at, err);
        if (!ok)
            return false;
    }
    return true;
}

static bool check_memory(const struct config *config, int64_t bytes, const char *file, const char *path,
                         struct err *err)
{
    int64_t least = config->limits.max_message + 2 * config->limits.max_body;
    return bytes == 0 || bytes >= least ||
           err_set(err, ERR_CONFIG,
                   "%s: %s: %" PRId64 " bytes are less than the %" PRId64 " of /limits/max_message (%" PRId64
                   ") plus twice /limits/max_body (%" PRId64 "); raise it, or lower those",
                   file, path, bytes, least, config->limits.max_message, config->limits.max_body);
}

// Those of the tenants from `first` on; `file` is NULL: each has one of its own in the folder.
static bool check_tenants_memory(const struct config *config, size_t first, const char *file, const char *folder,
                                 struct err *err)
{
    const struct config_tenant *tenants = config->tenants.at;
    bool ok = true;
    for (size_t i = first; ok && i < config->tenants.count; i++) {
        struct buf own = {0}, path = {0};
        buf_printf(&own, "%s/%s.json", folder, tenants[i].name);
        buf_printf(&path, "/tenants/%s/limits/memory", tenants[i].name);
        ok = check_memory(config, tenants[i].limits.memory, file ? file : buf_text(&own),
                          file ? buf_text(&path) : "/limits/memory", err);
        buf_release(&own);
        buf_release(&path);
    }
    return ok;
}

static bool check(void *object, const struct option_place *place, struct err *err)
{
    struct config *config = object;
    if (!check_memory(config, config->limits.memory, place->file, "/limits/memory", err) ||
        !check_memory(config, config->limits.identity_memory, place->file, "/limits/identity_memory", err) ||
        !check_tenants_memory(config, 0, place->file, "", err))
        return false;
    if (!check_listeners(config, place, err) || !check_provider_names(config, place, err) ||
        !config_check_servers(config, place->file, err))
        return false;
    if (!config->policy && config_proves(config))
        return err_set(err, ERR_CONFIG,
                       "%s: /policy: a provider proves who calls, but no policy says what they may do; "
                       "name a policy file or folder",
                       place->file);
    return check_separator(config, place, err) && check_prefixes(&config->servers, place, err) &&
           profile_check_all(&config->profiles, &config->servers, place, err) &&
           limit_check(&config->limits.rates, &config->servers, place, err);
}

const struct option_table config_options = {"postern.json", sizeof(struct config), rows, check};

static struct config *parse(const json_t *tree, const struct option_place *place, struct err *err)
{
    struct config *config = mem_new(struct config);
    if (!option_parse(&config_options, tree, config, place, err)) {
        config_free(config);
        return NULL;
    }
    return config;
}

struct config *config_parse(const json_t *tree, const char *file, struct err *err)
{
    return parse(tree, &(struct option_place){.file = file, .path = ""}, err);
}

// Paths of the file are relative to it; "-" is standard output.
static void resolve(const struct config *config, char **path)
{
    if (!*path || strcmp(*path, "-") == 0)
        return;
    char *full = config_file(config, *path);
    free(*path);
    *path = full;
}

static bool check_trust(const struct config *config, struct option_items *items, const char *path, struct err *err)
{
    struct server *servers = items->at;
    struct err why;
    for (size_t i = 0; i < items->count; i++) {
        resolve(config, &servers[i].tls.ca_file);
        servers[i].auth.ca_file = servers[i].tls.ca_file;
        if (servers[i].tls.ca_file && !servers[i].disabled && !trust_check(servers[i].tls.ca_file, &why))
            return err_set(err, ERR_CONFIG, "%s: /mcpServers/%s/tls/ca_file: %s", path, servers[i].name, why.detail);
    }
    return true;
}

// The authorities that servers name are there. What they vouch for is seen when a server is connected to.
static bool check_authorities(struct config *config, const char *path, struct err *err)
{
    struct config_tenant *tenants = config->tenants.at;
    bool ok = check_trust(config, &config->servers, path, err);
    for (size_t i = 0; ok && i < config->tenants.count; i++)
        ok = check_trust(config, &tenants[i].servers, path, err);
    return ok;
}

// Clients start the program in whatever folder they are in: the message about a missing file names the folder.
static json_t *parse_file(const char *path, struct err *err)
{
    if (path[0] == '/' || access(path, F_OK) == 0)
        return json_parse_file(path, err);
    int why = errno;
    char *here = getcwd(NULL, 0);
    const char *folder = !here ? "." : here[1] ? here : "";
    (void)err_set(err, ERR_CONFIG, "%s/%s: %s", folder, path, strerror(why));
    free(here);
    return NULL;
}

static struct config *load(const struct option_place *place, struct err *err)
{
    const char *path = place->file;
    bool literal = place->literal;
    json_t *tree = parse_file(path, err);
    if (!tree)
        return NULL;
    struct config *config = parse(tree, place, err);
    json_decref(tree);
    if (!config)
        return NULL;
    const char *slash = strrchr(path, '/');
    if (slash)
        config->folder = mem_copy(path, (size_t)(slash - path));
    if (!literal) {
        resolve(config, &config->audit.path);
        resolve(config, &config->audit.jsonl);
        resolve(config, &config->store.path);
        resolve(config, &config->store.seed);
        if (!vault_key_is_descriptor(&config->vault))
            resolve(config, &config->vault.key_file);
    }
    char *folder = config_file(config, "tenants.d");
    size_t first = config->tenants.count;
    struct option_place beside = {folder, "", literal, place->unset};
    bool ok = tenants_d_read(&config->tenants, &tenant_options, &beside, err) &&
              check_tenants_memory(config, first, NULL, folder, err) &&
              (literal || config_check_tenants(config, first, folder, path, err));
    free(folder);
    if (ok && (literal || place->unset || check_authorities(config, path, err)))
        return config;
    config_free(config);
    return NULL;
}

struct config *config_load(const char *path, struct err *err)
{
    return load(&(struct option_place){.file = path, .path = ""}, err);
}

struct config *config_load_literal(const char *path, struct err *err)
{
    return load(&(struct option_place){.file = path, .path = "", .literal = true}, err);
}

struct config *config_load_offline(const char *path, struct option_unset *unset, struct err *err)
{
    return load(&(struct option_place){.file = path, .path = "", .unset = unset}, err);
}

bool config_audited(const struct config *config)
{
    return config->audit.path || config->audit.jsonl || config_proves(config);
}

char *config_file(const struct config *config, const char *path)
{
    struct buf full = {0};
    if (path[0] != '/' && config->folder)
        buf_printf(&full, "%s/", config->folder);
    buf_put_text(&full, path);
    return buf_take(&full, NULL);
}

void config_free(struct config *config)
{
    if (!config)
        return;
    option_release(&config_options, config);
    free(config->folder);
    free(config);
}

char *config_path(const char *given)
{
    if (given)
        return mem_string(given);
    const char *named = getenv("POSTERN_CONFIG");
    if (named && *named)
        return mem_string(named);
    if (access("postern.json", R_OK) == 0)
        return mem_string("postern.json");
    struct buf path = {0};
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (xdg && *xdg)
        buf_printf(&path, "%s/postern/postern.json", xdg);
    else
        buf_printf(&path, "%s/.config/postern/postern.json", home ? home : "");
    char *found = buf_take(&path, NULL);
    if (access(found, R_OK) == 0)
        return found;
    free(found);
    return NULL;
}

const char *config_tenant_name(const struct config *config, size_t i)
{
    const struct config_tenant *tenants = config->tenants.at;
    return i ? tenants[i - 1].name : "default";
}

const struct option_items *config_tenant_servers(const struct config *config, size_t i)
{
    const struct config_tenant *tenants = config->tenants.at;
    return i ? &tenants[i - 1].servers : &config->servers;
}

const struct server *config_server(const struct config *config, const char *tenant, const char *name)
{
    for (size_t i = 0; i <= config->tenants.count; i++) {
        const struct option_items *items = config_tenant_servers(config, i);
        const struct server *servers = items->at;
        for (size_t k = 0; strcmp(config_tenant_name(config, i), tenant) == 0 && k < items->count; k++)
            if (strcmp(servers[k].name, name) == 0)
                return &servers[k];
    }
    return NULL;
}
