// The configuration of one server behind the gateway (mcpServers.NAME).
#ifndef UPSTREAM_SERVER_H
#define UPSTREAM_SERVER_H

#include "auth/login/access_options.h"
#include "base/option.h"

enum server_type { SERVER_AUTO, SERVER_STDIO, SERVER_HTTP, SERVER_STREAMABLE, SERVER_SSE };
enum server_isolation { SERVER_SHARED, SERVER_PER_USER, SERVER_PER_SESSION };
enum server_idle { SERVER_IDLE_ADAPTIVE = -1, SERVER_IDLE_NEVER = -2 };
enum server_framing { SERVER_FRAMING_AUTO, SERVER_FRAMING_NEWLINE, SERVER_FRAMING_CONTENT_LENGTH };

struct server_tls {
    char *ca_file;  // NULL: only the system's authorities
};

struct server {
    char *name;  // the key in mcpServers
    int type;
    char *command;
    char **args;
    struct option_pairs env;
    char *env_file;      // its lines were added to `env`
    char **inherit_env;  // names of variables of the gateway; may be NULL
    char *cwd;
    int framing;
    char *url;
    struct option_pairs headers;
    struct server_tls tls;
    struct access_options auth;
    int64_t timeout_ms;
    struct option_pairs tool_timeouts;  // by the tool's own name, as text
    int64_t max_timeout_ms;
    int64_t start_timeout_ms;
    int64_t connect_timeout_ms;
    int64_t idle_stream_timeout_ms;  // 0: none
    char *prefix;                    // NULL: the server's name; "": none
    int isolation;
    int64_t idle_timeout_ms;  // or enum server_idle
    int64_t min_idle_timeout_ms, max_idle_timeout_ms;
    bool eager;
    bool disabled;
};

extern const struct option_table server_options;
// A request without side effects. It is sent without a token, to get the 401 whose challenge says where a login begins.
extern const char server_probe[];
// What `tool_timeouts` says of the tool, in ms; 0: nothing.
int64_t server_tool_timeout(const struct server *server, struct span tool);
// Finds a server by name in a list of struct server; NULL if there is no such server.
const struct server *server_find(const struct option_items *servers, struct span name);

#endif
