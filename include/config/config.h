// The whole configuration, parsed and checked: an immutable, counted snapshot. Code that keeps a pointer into it keeps
// a reference. The count belongs to one thread at a time: to the thread that loaded the snapshot, until it hands the
// snapshot over.
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "auth/grant/vault.h"
#include "base/err.h"
#include "base/option.h"
#include "config/front.h"
#include "config/limits.h"
#include "config/listener.h"
#include "store/audit/audit.h"
#include "store/catalogue.h"
#include "store/record.h"
#include "upstream/server.h"

struct config_log {
    int level;   // enum log_level
    int format;  // enum log_format
};

// `hosted` in the configuration.
struct config_hosted {
    bool allow_unbound_tickets;
    int64_t lifetime_ms;
    char **return_to;              // origins; NULL at the end, or NULL
    char **authorization_servers;  // domains; NULL: any
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
    char *control;               // path of the control socket; NULL: config_control_path() has a default; "": none
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
    struct audit_config audit;  // config_load() has resolved the paths in this and the next three
    struct record_config store;
    struct vault_config vault;
    struct catalogue_config catalogue;
    struct config_hosted hosted;
    struct config_limits limits;
    struct config_timeouts timeouts;
    char *folder;  // of the file; relative paths start here
    char *notes;   // lines about the files that are not errors; may be NULL
    unsigned refs;
};

// Whether an audit log is kept: if it is configured, or if a provider authenticates callers.
bool config_audited(const struct config *config);

extern const struct option_table config_options;

struct config *config_parse(const json_t *tree, const char *file, struct err *err) MUST_CHECK;
// `problems` gets all problems of the file, with their positions; the error has the first of them. NULL: only that one.
struct config *config_load(const char *path, struct option_problems *problems, struct err *err) MUST_CHECK;
// Keeps "${NAME}" as it is written, so that the configuration can be shown without values of the environment.
struct config *config_load_literal(const char *path, struct err *err) MUST_CHECK;
// For a check on another host: variables may be unset, and files are not read. Never serve with the result.
struct config *config_load_offline(const char *path, struct option_unset *unset, struct option_problems *problems,
                                   struct err *err) MUST_CHECK;
void config_log_notes(const struct config *config);
// --config, then $POSTERN_CONFIG, ./postern.json, $XDG_CONFIG_HOME/postern/postern.json. NULL: no file was found.
char *config_path(const char *given);
// The path of the control socket of a gateway with this configuration. Without a configuration (NULL): the default path. NULL:
// no control socket. The caller frees it.
char *config_control_path(const struct config *config);
// The tenants by number, from 0 to tenants.count: `default` is the first.
const char *config_tenant_name(const struct config *config, size_t i);
const struct option_items *config_tenant_servers(const struct config *config, size_t i);  // struct server
// The servers of the tenant of this name. NULL: the tenant does not exist.
const struct option_items *config_tenant_find(const struct config *config, const char *tenant);
const struct server *config_tenant_find_server(const struct config *config, const char *tenant, const char *name);
#endif
