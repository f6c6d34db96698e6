// The whole configuration, parsed and checked; immutable once loaded.
#ifndef GATE_CONFIG_H
#define GATE_CONFIG_H

#include "auth/provider.h"
#include "auth/vault.h"
#include "base/err.h"
#include "base/option.h"
#include "gate/hosted.h"
#include "store/audit.h"
#include "store/record.h"
#include "upstream/server.h"

// Paths of PEM files; without a certificate there is no TLS.
struct config_tls {
    char *certificate;
    char *key;
    char *client_ca;
};

struct config_listener {
    char *address;  // "127.0.0.1:8080", "unix:/path"
    char *mode;     // of a unix socket, octal
    struct config_tls tls;
    struct auth_config auth;  // its own; see config_auth()
};

struct config_log {
    int level;   // enum log_level
    int format;  // enum log_format
};

// Whose calls a limit counts together.
enum config_per { CONFIG_PER_TENANT, CONFIG_PER_IDENTITY, CONFIG_PERS };

// A limit on calls; src/gate/limit.c has its options.
struct config_rate {
    char *server, *tool, *subject;  // NULL: any
    int per;                        // enum config_per
    int64_t calls, window_ms, burst;
    int64_t concurrent;  // 0: any number, and likewise calls
};

struct config_limits {
    struct option_items rates;  // struct config_rate, of the tenant `default`
    int64_t auth_failures;
    int64_t auth_window_ms;
    int64_t max_header;
    int64_t max_body;
    int64_t max_message;
    int64_t memory, identity_memory;  // 0: no bound
    int64_t connections, unauthenticated_connections;
    int64_t sessions, identity_sessions;
    int64_t processes, identity_processes;
    int64_t session_calls;
    int64_t batch;
    int64_t page_size;
    int64_t stream_buffer;
    int64_t replay_events;
    int64_t header_timeout_ms;
    int64_t body_timeout_ms, unauthenticated_body_timeout_ms;
    int64_t idle_timeout_ms;
    int64_t min_rate;
};

struct config_timeouts {
    int64_t list_ms;
    int64_t stream_after_ms;
    int64_t heartbeat_ms;
    int64_t retry_ms;
    int64_t session_idle_ms;
    int64_t resume_ms;
    int64_t ask_ms;
    int64_t shutdown_ms;
};

struct config_tenant_limits {
    struct option_items rates;  // struct config_rate
    int64_t sessions, processes;
    int64_t memory;  // 0: no bound
};

// A tenant beside `default`, which is the top of the file: its own servers, profiles and limits, and its own policy if it
// has one. It stands in the file, or in tenants.d/NAME.json beside it.
struct config_tenant {
    char *name;
    struct option_items servers;   // struct server
    struct option_items profiles;  // struct profile
    char *policy;
    struct config_tenant_limits limits;
};

struct config {
    struct option_items listen;  // struct config_listener
    char *public_url;
    char **allowed_hosts;
    char **allowed_origins;
    struct auth_config auth;
    char *policy;
    struct option_items servers;   // struct server
    struct option_items profiles;  // struct profile
    struct option_items tenants;   // struct config_tenant
    bool prefix;
    char *separator;
    struct config_log log;
    struct audit_config audit;
    struct record_config store;  // paths of these two: relative to the file, and resolved
    struct vault_config vault;
    struct hosted_config hosted;
    struct config_limits limits;
    struct config_timeouts timeouts;
    char *folder;  // of the file: what relative paths in it are relative to
};

// Who may come in at a listener: its own list of providers, or the one at the top. NULL: no listener of the file.
const struct auth_config *config_auth(const struct config *config, const struct config_listener *listener);
bool config_proves(const struct config *config);  // does a provider of any of them prove who calls?
// Is there to be an audit log? If it is configured, and wherever somebody proves who calls.
bool config_audited(const struct config *config);
// A path of the configuration, relative to its file. The caller frees it.
char *config_file(const struct config *config, const char *path);

extern const struct option_table config_options;

struct config *config_parse(const json_t *tree, const char *file, struct err *err) MUST_CHECK;
struct config *config_load(const char *path, struct err *err) MUST_CHECK;
// As it is written, "${NAME}" and all: for showing it without what the environment holds.
struct config *config_load_literal(const char *path, struct err *err) MUST_CHECK;
// Away from the host it is for: variables may be unset, and files of that host are not looked at. Never to serve with.
struct config *config_load_offline(const char *path, struct option_unset *unset, struct err *err) MUST_CHECK;
void config_free(struct config *config);
// --config, then $POSTERN_CONFIG, ./postern.json, $XDG_CONFIG_HOME/postern/postern.json; NULL if there is none.
char *config_path(const char *given);
// The tenants by number, from 0 to tenants.count: `default` is the first.
const char *config_tenant_name(const struct config *config, size_t i);
const struct option_items *config_tenant_servers(const struct config *config, size_t i);  // struct server
const struct server *config_server(const struct config *config, const char *tenant, const char *name);
// "127.0.0.1:8080", "localhost:0" and "[::1]:8080" are local; nothing else is.
bool config_address_is_loopback(const char *address);
const char *config_unix_path(const char *address);  // of "unix:/path"; NULL for any other address
// The listener that this address is of, else the first with an equal one (--listen), else NULL. Port 0 may be listed
// several times, so the text alone does not tell.
const struct config_listener *config_listener(const struct config *config, const char *address);
// May the gateway listen there? A unix socket, or ADDRESS:PORT on loopback unless a provider of the listener proves who
// calls.
bool config_may_listen(const struct config *config, const char *address, const struct option_place *place,
                       struct err *err) MUST_CHECK;

#endif
