// Owns the top of the configuration: its option rows, its checks, and the search for its file.
#include "auth/access/trust.h"
#include "base/log.h"
#include "base/mem.h"
#include "catalog/profile.h"
#include "env_file.h"
#include "loop/unix_socket.h"
#include "servers.h"
#include "tables.h"
#include "tenants_d.h"
#include "text_file.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const char *const levels[] = {"debug", "info", "warn", "error", "off", NULL};
static const char *const formats[] = {"text", "json", NULL};

#define AT(member) offsetof(struct config_log, member)
static const struct option log_rows[] = {
    {.name = "level",
     .type = OPTION_ENUM,
     .offset = AT(level),
     .fallback = "\"info\"",
     .choices = levels,
     .help = "The lowest level that is logged."},
    {.name = "format",
     .type = OPTION_ENUM,
     .offset = AT(format),
     .fallback = "\"text\"",
     .choices = formats,
     .help = "The format of log lines on standard error: `text` for people, `json` for programs."},
    {0},
};
#undef AT
static const struct option_table log_options = {"Log (log)", sizeof(struct config_log), log_rows, NULL};

#define AT(member) offsetof(struct config, member)
static const struct option rows[] = {
    {.name = "listen",
     .type = OPTION_OBJECTS,
     .offset = AT(listen),
     .sub = &config_listener_options,
     .help = "The addresses on which the gateway serves HTTP; 127.0.0.1:8080 if absent. An address that is neither on "
             "loopback nor a unix socket requires a provider that authenticates callers."},
    {.name = "control",
     .type = OPTION_STRING,
     .offset = AT(control),
     .fixed = true,
     .help =
         "The unix socket that `postern status`, `servers`, `logs`, `reload`, `restart`, `enable` and `disable` use. "
         "`$XDG_RUNTIME_DIR/postern.sock` if absent and that variable is set; `\"\"`: no socket. Only the gateway's "
         "own "
         "user and root may use it. A gateway without HTTP listeners does not open it."},
    {.name = "public_url",
     .type = OPTION_STRING,
     .offset = AT(public_url),
     .fixed = true,
     .help = "The URL at which callers reach the gateway. Its host is accepted in Host and Origin."},
    {.name = "allowed_hosts",
     .type = OPTION_STRINGS,
     .offset = AT(allowed_hosts),
     .help = "Additional values of Host to accept, besides loopback names and the host of `public_url`."},
    {.name = "allowed_origins",
     .type = OPTION_STRINGS,
     .offset = AT(allowed_origins),
     .help = "Additional origins (scheme://host:port) from which a browser may call."},
    {.name = "auth",
     .type = OPTION_OBJECT,
     .offset = AT(auth),
     .sub = &provider_config_options,
     .help = "How callers are authenticated on standard input, and at listeners that do not set `auth`."},
    {.name = "policy",
     .type = OPTION_STRING,
     .offset = AT(policy),
     .help =
         "Policy file, or folder of policy files, relative to this file. Required with a provider that authenticates "
         "callers. Without a policy, every caller may do everything."},
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
     .help = "Selections of servers and tools, each with its own names, at `/mcp/NAME`. `/mcp` offers all servers and "
             "tools."},
    {.name = "tenants",
     .type = OPTION_NAMED_OBJECTS,
     .offset = AT(tenants),
     .fallback = "{}",
     .sub = &config_tenant_options,
     .help = "Tenants besides `default`, by name. Each file `tenants.d/NAME.json` beside this file defines another "
             "tenant. An identity whose tenant is not defined is refused."},
    {.name = "prefix",
     .type = OPTION_BOOL,
     .offset = AT(prefix),
     .fallback = "true",
     .help =
         "Put the server's name before tool and prompt names, and wrap resource URIs. If false, names and URIs stay "
         "as the servers have them."},
    {.name = "separator",
     .type = OPTION_STRING,
     .offset = AT(separator),
     .fallback = "\"__\"",
     .help = "The text between prefix and name."},
    {.name = "log",
     .type = OPTION_OBJECT,
     .offset = AT(log),
     .sub = &log_options,
     .help = "Level and format of the log."},
    {.name = "audit",
     .type = OPTION_OBJECT,
     .offset = AT(audit),
     .sub = &audit_options,
     .fixed = true,
     .help = "The audit log, which records every call. It is on if `path` or `jsonl` is set, and always on with a "
             "provider that authenticates callers."},
    {.name = "store",
     .type = OPTION_OBJECT,
     .offset = AT(store),
     .sub = &record_options,
     .fixed = true,
     .help = "The store of users' tokens for servers."},
    {.name = "vault",
     .type = OPTION_OBJECT,
     .offset = AT(vault),
     .sub = &vault_options,
     .fixed = true,
     .help = "The keys that seal users' tokens in the store."},
    {.name = "catalogue",
     .type = OPTION_OBJECT,
     .offset = AT(catalogue),
     .sub = &catalogue_options,
     .help = "The cache of the servers' lists, so that a gateway that has just started can answer without starting the "
             "servers."},
    {.name = "hosted",
     .type = OPTION_OBJECT,
     .offset = AT(hosted),
     .sub = &config_hosted_options,
     .help = "How users connect their accounts at servers with auth mode `per_user`: see docs/oauth.md."},
    {.name = "limits",
     .type = OPTION_OBJECT,
     .offset = AT(limits),
     .sub = &config_limits_options,
     .help = "Limits on sizes, rates, connections, sessions and memory."},
    {.name = "timeouts",
     .type = OPTION_OBJECT,
     .offset = AT(timeouts),
     .sub = &config_limits_timeouts,
     .help = "Time limits of requests, sessions and the shutdown."},
    {0},
};
#undef AT

static bool check_separator(const struct config *config, const struct option_place *place, struct err *err)
{
    size_t len = strlen(config->separator);
    if (len >= 1 && len <= 8 && strspn(config->separator, "_-./") == len)
        return true;
    return err_set(err, ERR_CONFIG, "%s: %s/separator: must be 1 to 8 of the characters _ - . /", place->file,
                   place->path);
}

static bool check_control(const struct config *config, const struct option_place *place, struct err *err)
{
    const char *path = config->control;
    bool unknown = path && place->unset && strstr(path, "${");
    if (!path || !*path || unknown || (path[0] == '/' && strlen(path) <= UNIX_SOCKET_PATH_MAX))
        return true;
    return err_set(err, ERR_CONFIG,
                   "%s: %s/control: \"%s\" is not the path of a socket: write one from the root, at most %d bytes long",
                   place->file, place->path, path, UNIX_SOCKET_PATH_MAX);
}

static bool check(void *object, const struct option_place *place, struct err *err)
{
    struct config *config = object;
    if (!config_limits_check_memory(config, place->file, err) ||
        !config_limits_check_tenants(config, 0, place->file, "", err))
        return false;
    if (!config_listener_check_all(config, place, err) || !config_listener_check_names(config, place, err) ||
        !config_servers_check(config, place->file, err))
        return false;
    if (!config->policy && config_listener_proves(config))
        return err_set(err, ERR_CONFIG,
                       "%s: /policy: a provider authenticates callers, but no policy says what they may do; "
                       "name a policy file or folder",
                       place->file);
    return check_control(config, place, err) && check_separator(config, place, err) &&
           config_tenant_check_prefixes(&config->servers, place, err) &&
           profile_check_all(&config->profiles, &config->servers, place, err) &&
           config_rates_check(&config->limits.rates, &config->servers, place, err);
}

const struct option_table config_options = {"postern.json", sizeof(struct config), rows, check};

struct config *config_parse(const json_t *tree, const char *file, struct err *err)
{
    struct config *config = mem_new(struct config);
    config->refs = 1;
    if (!option_parse(&config_options, tree, config, &(struct option_place){.file = file, .path = ""}, err)) {
        config_unref(config);
        return NULL;
    }
    return config;
}

// Paths in the file are relative to the file; "-" is standard output.
static void resolve(const struct config *config, char **path)
{
    if (!*path || strcmp(*path, "-") == 0)
        return;
    char *full = config_file(config, *path);
    free(*path);
    *path = full;
}

// A problem is at a key of a server; `at` is the file and the path of the tenant.
static bool read_files(const struct config *config, struct option_items *items, const char *at, struct err *err)
{
    struct server *servers = items->at;
    struct err why;
    for (size_t i = 0; i < items->count; i++) {
        resolve(config, &servers[i].env_file);
        if (servers[i].env_file && !servers[i].disabled && !env_file_read(&servers[i], &why))
            return err_set(err, ERR_CONFIG, "%s/mcpServers/%s/env_file: %s", at, servers[i].name, why.detail);
        resolve(config, &servers[i].tls.ca_file);
        servers[i].auth.ca_file = servers[i].tls.ca_file;
        if (servers[i].tls.ca_file && !servers[i].disabled && !trust_check(servers[i].tls.ca_file, &why))
            return err_set(err, ERR_CONFIG, "%s/mcpServers/%s/tls/ca_file: %s", at, servers[i].name, why.detail);
    }
    return true;
}

// Reads the files of variables that servers name, and checks that their files of authorities can be used. Whether these signed the
// certificate of a server is known only when the gateway connects. Tenants from `first` on have files of their own.
static bool read_server_files(struct config *config, size_t first, const char *path, const char *folder,
                              struct err *err)
{
    struct config_tenant *tenants = config->tenants.at;
    struct buf at = {0};
    buf_printf(&at, "%s: ", path);
    bool ok = read_files(config, &config->servers, buf_text(&at), err);
    for (size_t i = 0; ok && i < config->tenants.count; i++) {
        buf_clear(&at);
        if (i < first)
            buf_printf(&at, "%s: /tenants/%s", path, tenants[i].name);
        else
            buf_printf(&at, "%s/%s.json: ", folder, tenants[i].name);
        ok = read_files(config, &tenants[i].servers, buf_text(&at), err);
    }
    buf_release(&at);
    return ok;
}

// A client starts the program in a folder of its choice, so the message about a missing file names the folder.
static bool exists(const char *path, struct err *err)
{
    if (path[0] == '/' || access(path, F_OK) == 0)
        return true;
    int why = errno;
    char *here = getcwd(NULL, 0);
    const char *folder = !here ? "." : here[1] ? here : "";
    (void)err_set(err, ERR_CONFIG, "%s/%s: %s", folder, path, strerror(why));
    free(here);
    return false;
}

static void resolve_paths(struct config *config)
{
    resolve(config, &config->audit.path);
    resolve(config, &config->audit.jsonl);
    resolve(config, &config->store.path);
    if (config->catalogue.path && *config->catalogue.path)
        resolve(config, &config->catalogue.path);
    resolve(config, &config->store.seed);
    if (!vault_ring_is_descriptor(&config->vault))
        resolve(config, &config->vault.key_file);
}

// Adds the tenants of tenants.d, and makes the checks that need them.
static bool complete(struct config *config, const struct option_place *place, struct err *err)
{
    bool literal = place->literal;
    char *folder = config_file(config, "tenants.d");
    size_t first = config->tenants.count;
    struct option_place beside = *place;
    beside.file = folder;
    bool ok = tenants_d_read(&config->tenants, &config_tenant_options, &beside, err) &&
              config_limits_check_tenants(config, first, NULL, folder, err) &&
              (literal || config_servers_check_tenants(config, first, folder, place->file, err)) &&
              (literal || place->unset || read_server_files(config, first, place->file, folder, err));
    free(folder);
    return ok;
}

static struct config *read_main(struct text_file *file, const struct option_place *place, struct err *err)
{
    const char *slash = strrchr(file->path, '/');
    if (!exists(file->path, err))
        return NULL;
    struct config *config = mem_new(struct config);
    config->refs = 1;
    if (!text_file_read(file, &config_options, config, place, err)) {
        config_unref(config);
        return NULL;
    }
    if (slash)
        config->folder = mem_copy(file->path, (size_t)(slash - file->path));
    if (!place->literal)
        resolve_paths(config);
    return config;
}

// The error has the first problem, and says whether there are more.
static bool conclude(const struct option_problems *problems, struct err *err)
{
    enum err_code code = problems->code ? problems->code : ERR_CONFIG;
    struct span first = buf_span(&problems->lines);
    const char *end = memchr(first.at, '\n', first.len);
    first.len = (size_t)(end - first.at);
    if (problems->count == 1)
        return err_set(err, code, "%.*s", SPAN_ARG(first));
    return err_set(err, code, "%.*s (and %zu more; `postern config check` prints all)", SPAN_ARG(first),
                   problems->count - 1);
}

// All problems of the file are reported; those of tenants.d only if the file itself is valid.
static struct config *load(const struct option_place *place, struct err *err)
{
    struct text_file file = {.path = place->file};
    struct option_problems own = {0}, *problems = place->problems ? place->problems : &own;
    struct buf notes = {0};
    struct option_place inside = *place;
    inside.problems = problems;
    inside.notes = &notes;
    *err = (struct err){0};
    struct config *config = read_main(&file, &inside, err);
    bool ok = config && complete(config, &inside, err);
    text_file_close(&file, problems, err);
    if (!ok) {
        (void)conclude(problems, err);
        config_unref(config);
        config = NULL;
    } else {
        config->notes = buf_take(&notes, NULL);
    }
    buf_release(&notes);
    buf_release(&own.lines);
    return config;
}

struct config *config_load(const char *path, struct option_problems *problems, struct err *err)
{
    return load(&(struct option_place){.file = path, .path = "", .problems = problems}, err);
}

struct config *config_load_literal(const char *path, struct err *err)
{
    return load(&(struct option_place){.file = path, .path = "", .literal = true}, err);
}

struct config *config_load_offline(const char *path, struct option_unset *unset, struct option_problems *problems,
                                   struct err *err)
{
    return load(&(struct option_place){.file = path, .path = "", .unset = unset, .problems = problems}, err);
}

void config_log_notes(const struct config *config)
{
    for (const char *line = config->notes ? config->notes : "", *end; (end = strchr(line, '\n')); line = end + 1) {
        char *note = mem_copy(line, (size_t)(end - line));
        log_info("note on the configuration", LOG_STR("detail", note));
        free(note);
    }
}

bool config_audited(const struct config *config)
{
    return config->audit.path || config->audit.jsonl || config_listener_proves(config);
}

char *config_file(const struct config *config, const char *path)
{
    struct buf full = {0};
    if (path[0] != '/' && config->folder)
        buf_printf(&full, "%s/", config->folder);
    buf_put_text(&full, path);
    return buf_take(&full, NULL);
}

// The count is bookkeeping, not content of the snapshot.
static struct config *counted(const struct config *config) { return (struct config *)(uintptr_t)config; }

const struct config *config_ref(const struct config *config)
{
    counted(config)->refs++;
    return config;
}

void config_unref(const struct config *config)
{
    struct config *mine = counted(config);
    if (!mine || --mine->refs)
        return;
    option_release(&config_options, mine);
    free(mine->folder);
    free(mine->notes);
    free(mine);
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

char *config_control_path(const struct config *config)
{
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (config && config->control)
        return *config->control ? mem_string(config->control) : NULL;
    if (!folder || folder[0] != '/')
        return NULL;
    struct buf path = {0};
    buf_printf(&path, "%s/postern.sock", folder);
    return buf_take(&path, NULL);
}
