// Owns the option rows of one server.
#include "upstream/server.h"
#include "base/field.h"
#include "loop/http_url.h"
#include <ctype.h>
#include <strings.h>

static const char *const types[] = {"auto", "stdio", "http", "streamable-http", "sse", NULL};
static const char *const isolations[] = {"shared", "user", "session", NULL};
static const char *const idle_words[] = {"adaptive", "never", NULL};
static const char *const framings[] = {"auto", "newline", "content-length", NULL};

static const struct option tls_rows[] = {
    {.name = "ca_file",
     .type = OPTION_STRING,
     .offset = offsetof(struct server_tls, ca_file),
     .help = "PEM file with private certificate authorities, relative to the configuration file. They are trusted for "
             "this server and its authorization server, in addition to the system's authorities. The file is read for "
             "each connection."},
    {0},
};
static const struct option_table tls_options = {"TLS of a server (mcpServers.NAME.tls)", sizeof(struct server_tls),
                                                tls_rows, NULL};

#define AT(member) offsetof(struct server, member)
#define TIMEOUT_MAX_MS 86400000

static const struct option rows[] = {
    {.name = "type",
     .type = OPTION_ENUM,
     .offset = AT(type),
     .fallback = "\"auto\"",
     .choices = types,
     .help = "Transport. `auto`: stdio with a `command`; with a `url`, Streamable HTTP, with a fallback to HTTP+SSE."},
    {.name = "command",
     .type = OPTION_STRING,
     .offset = AT(command),
     .help = "Program to start. It is searched for in PATH and never run by a shell."},
    {.name = "args", .type = OPTION_STRINGS, .offset = AT(args), .help = "Arguments of the program."},
    {.name = "env",
     .type = OPTION_PAIRS,
     .offset = AT(env),
     .secret = true,
     .help = "Environment of the program. From the gateway's environment, the program inherits only PATH, HOME, USER, "
             "LOGNAME, SHELL, LANG, LC_ALL, TZ, TMPDIR and TERM, and those in `inherit_env`."},
    {.name = "env_file",
     .type = OPTION_STRING,
     .offset = AT(env_file),
     .help = "File with lines NAME=VALUE that are added to `env`, relative to the configuration file. It is read when "
             "the configuration is loaded. A name that `env` has is not changed."},
    {.name = "inherit_env",
     .type = OPTION_STRINGS,
     .offset = AT(inherit_env),
     .help = "More variables that the program inherits from the gateway's environment, by name, such as HTTPS_PROXY, "
             "NODE_EXTRA_CA_CERTS or PYTHONPATH."},
    {.name = "cwd", .type = OPTION_STRING, .offset = AT(cwd), .help = "Working directory of the program."},
    {.name = "framing",
     .type = OPTION_ENUM,
     .offset = AT(framing),
     .fallback = "\"auto\"",
     .choices = framings,
     .help = "How messages are written to a stdio server. `auto`: one line for each message, until the server itself "
             "uses Content-Length. From the server, both formats are always accepted."},
    {.name = "url", .type = OPTION_STRING, .offset = AT(url), .help = "Endpoint of an HTTP server."},
    {.name = "headers",
     .type = OPTION_PAIRS,
     .offset = AT(headers),
     .secret = true,
     .help = "Headers sent with every request to the server."},
    {.name = "tls",
     .type = OPTION_OBJECT,
     .offset = AT(tls),
     .sub = &tls_options,
     .help = "Verification of the server's certificate."},
    {.name = "auth",
     .type = OPTION_OBJECT,
     .offset = AT(auth),
     .sub = &access_options_table,
     .help = "Authentication of the gateway to the server: see docs/oauth.md."},
    {.name = "timeout",
     .type = OPTION_DURATION,
     .offset = AT(timeout_ms),
     .fallback = "60",
     .min = 1,
     .max = TIMEOUT_MAX_MS,
     .help = "Time limit of a request without an answer or progress."},
    {.name = "tool_timeouts",
     .type = OPTION_PAIRS,
     .offset = AT(tool_timeouts),
     .help =
         "`timeout` of individual tools: a map from the server's own name of a tool to a duration such as \"10m\"."},
    {.name = "max_timeout",
     .type = OPTION_DURATION,
     .offset = AT(max_timeout_ms),
     .fallback = "3600",
     .min = 1,
     .max = 604800000,
     .help = "Time limit of a whole request, even if the server reports progress."},
    {.name = "start_timeout",
     .type = OPTION_DURATION,
     .offset = AT(start_timeout_ms),
     .fallback = "30",
     .min = 1,
     .max = 3600000,
     .help = "Time limit for starting or connecting, including the handshake."},
    {.name = "connect_timeout",
     .type = OPTION_DURATION,
     .offset = AT(connect_timeout_ms),
     .fallback = "30",
     .min = 1,
     .max = 3600000,
     .help = "Time limit for opening a connection to an HTTP server."},
    {.name = "idle_stream_timeout",
     .type = OPTION_DURATION,
     .offset = AT(idle_stream_timeout_ms),
     .fallback = "900",
     .min = 0,
     .max = TIMEOUT_MAX_MS,
     .help =
         "How long an event stream that belongs to no request may be without a byte. After that, a stream of "
         "Streamable HTTP is opened again; an HTTP+SSE server gets a ping, and is replaced if it does not answer. 0: "
         "no limit."},
    {.name = "prefix",
     .type = OPTION_STRING_OR_FALSE,
     .offset = AT(prefix),
     .help = "Prefix of the server's tool and prompt names. If absent, the prefix is the name of the server in "
             "`mcpServers`; if false, names have no prefix."},
    {.name = "isolation",
     .type = OPTION_ENUM,
     .offset = AT(isolation),
     .fallback = "\"shared\"",
     .choices = isolations,
     .help = "`shared`: one process or session for all callers. `user`: one for each tenant and user. `session`: one "
             "for each caller session; for servers that use elicitation or sampling."},
    {.name = "idle_timeout",
     .type = OPTION_DURATION,
     .offset = AT(idle_timeout_ms),
     .fallback = "\"adaptive\"",
     .min = 1,
     .max = 604800000,
     .choices = idle_words,
     .help =
         "A server that is not needed for this long is stopped; its tools, prompts and resources stay listed, and the "
         "next call starts it again. `adaptive`: 5 minutes with more than 20 requests per hour, 3 minutes with 5 "
         "to 20, otherwise 1 minute."},
    {.name = "min_idle_timeout",
     .type = OPTION_DURATION,
     .offset = AT(min_idle_timeout_ms),
     .fallback = "60",
     .min = 1,
     .max = 604800000,
     .help = "The shortest idle time with `adaptive`."},
    {.name = "max_idle_timeout",
     .type = OPTION_DURATION,
     .offset = AT(max_idle_timeout_ms),
     .fallback = "300",
     .min = 1,
     .max = 604800000,
     .help = "The longest idle time with `adaptive`, which also applies to a server that has not been used since its "
             "start."},
    {.name = "eager",
     .type = OPTION_BOOL,
     .offset = AT(eager),
     .fallback = "false",
     .help = "Start the server with the gateway instead of when it is first needed, and do not stop it when it is "
             "idle; only with isolation `shared`."},
    {.name = "disabled",
     .type = OPTION_BOOL,
     .offset = AT(disabled),
     .fallback = "false",
     .help = "Keep the entry, but do not use the server."},
    {0},
};

static bool good_key(const char *key)
{
    size_t len = strlen(key);
    for (const char *c = key; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            return false;
    return len >= 1 && len <= 48;
}

// An assertion names one user, so a connection that several users share cannot carry it.
static bool check_assertion(const struct server *server, const struct option_place *place, struct err *err)
{
    if (server->command)
        return err_set(err, ERR_CONFIG, "%s: %s/auth/assertion: applies only to a server with a \"url\"", place->file,
                       place->path);
    if (server->isolation == SERVER_SHARED)
        return err_set(err, ERR_CONFIG, "%s: %s/auth/assertion: needs \"isolation\" \"user\" or \"session\"",
                       place->file, place->path);
    for (size_t i = 0; i < server->headers.count; i++)
        if (strcasecmp(server->headers.at[i].name, server->auth.assertion.header) == 0)
            return err_set(err, ERR_CONFIG, "%s: %s/headers/%s: this header is reserved for the assertion", place->file,
                           place->path, server->headers.at[i].name);
    return true;
}

// A line break, such as one at the end of a variable that was read from a file, would begin another header.
static bool check_headers(const struct server *server, const struct option_place *place, struct err *err)
{
    for (size_t i = 0; i < server->headers.count; i++) {
        const char *name = server->headers.at[i].name;
        if (!field_is_name(span_of(name)))
            return err_set(err, ERR_CONFIG, "%s: %s/headers: \"%.64s\" is not a header name", place->file, place->path,
                           name);
        if (!field_is_value(span_of(server->headers.at[i].value)))
            return err_set(err, ERR_CONFIG, "%s: %s/headers/%s: has a line break or another control character",
                           place->file, place->path, name);
    }
    if (server->auth.token && !field_is_value(span_of(server->auth.token)))
        return err_set(err, ERR_CONFIG, "%s: %s/auth/token: has a line break or another control character", place->file,
                       place->path);
    return true;
}

static bool check_tool_timeouts(const struct server *server, const struct option_place *place, struct err *err)
{
    for (size_t i = 0; i < server->tool_timeouts.count; i++) {
        const struct option_pair *tool = &server->tool_timeouts.at[i];
        int64_t ms;
        if (!option_duration(tool->value, &ms) || ms < 1 || ms > TIMEOUT_MAX_MS)
            return err_set(err, ERR_CONFIG, "%s: %s/tool_timeouts/%s: \"%s\" is not a duration from \"1ms\" to \"1d\"",
                           place->file, place->path, tool->name, tool->value);
    }
    return true;
}

int64_t server_tool_timeout(const struct server *server, struct span tool)
{
    int64_t ms;
    for (size_t i = 0; i < server->tool_timeouts.count; i++)
        if (span_is(tool, server->tool_timeouts.at[i].name))
            return option_duration(server->tool_timeouts.at[i].value, &ms) ? ms : 0;
    return 0;
}

static bool check(void *object, const struct option_place *place, struct err *err)
{
    struct server *server = object;
    bool stdio = server->command != NULL, web = server->url != NULL;
    if (!good_key(server->name))
        return err_set(err, ERR_CONFIG, "%s: %s: a server's name is 1 to 48 letters, digits, '.', '_' or '-'",
                       place->file, place->path);
    if (server->prefix && *server->prefix && !good_key(server->prefix))
        return err_set(err, ERR_CONFIG, "%s: %s/prefix: must be 1 to 48 letters, digits, '.', '_' or '-', or false",
                       place->file, place->path);
    if (stdio == web)
        return err_set(err, ERR_CONFIG, "%s: %s: give either \"command\" or \"url\"", place->file, place->path);
    if (server->type == SERVER_STREAMABLE)
        server->type = SERVER_HTTP;
    if (server->type == SERVER_AUTO && stdio)
        server->type = SERVER_STDIO;
    if ((server->type == SERVER_STDIO) != stdio)
        return err_set(err, ERR_CONFIG, "%s: %s/type: \"%s\" needs a \"%s\"", place->file, place->path,
                       types[server->type], stdio ? "url" : "command");
    if (!stdio && (server->env_file || server->inherit_env))
        return err_set(err, ERR_CONFIG, "%s: %s/%s: applies only to a server with a \"command\"", place->file,
                       place->path, server->env_file ? "env_file" : "inherit_env");
    if (stdio && server->auth.mode != ACCESS_NONE)
        return err_set(err, ERR_CONFIG, "%s: %s/auth: applies only to a server with a \"url\"; a command gets \"env\"",
                       place->file, place->path);
    bool own = server->auth.mode == ACCESS_USER || access_options_takes_caller(&server->auth);
    if (own && server->isolation == SERVER_SHARED)
        server->isolation = SERVER_PER_USER;  // a server's state for one user must not reach another user (H2)
    if (server->min_idle_timeout_ms > server->max_idle_timeout_ms)
        return err_set(err, ERR_CONFIG, "%s: %s/min_idle_timeout: must not be above max_idle_timeout (%lld ms)",
                       place->file, place->path, (long long)server->max_idle_timeout_ms);
    if (server->eager && server->isolation != SERVER_SHARED)
        return err_set(err, ERR_CONFIG, "%s: %s/eager: only for a server with isolation \"shared\"", place->file,
                       place->path);
    if (server->auth.assertion.key_file && !check_assertion(server, place, err))
        return false;
    if (web && !http_url_valid(server->url))
        return err_set(err, ERR_CONFIG,
                       "%s: %s/url: must be an absolute http:// or https:// URL; put a user and password into "
                       "\"headers\", as Authorization",
                       place->file, place->path);
    if (server->tls.ca_file && (!web || strncasecmp(server->url, "https:", 6) != 0))
        return err_set(err, ERR_CONFIG, "%s: %s/tls/ca_file: applies only to a server with an https \"url\"",
                       place->file, place->path);
    return check_headers(server, place, err) && check_tool_timeouts(server, place, err);
}

const struct option_table server_options = {"A server (mcpServers.NAME)", sizeof(struct server), rows, check};

const char server_probe[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";

const struct server *server_find(const struct option_items *servers, struct span name)
{
    const struct server *all = servers->at;
    for (size_t i = 0; i < servers->count; i++)
        if (span_is(name, all[i].name))
            return &all[i];
    return NULL;
}
