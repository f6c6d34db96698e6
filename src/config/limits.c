// Owns the option rows of limits and timeouts, and the checks of memory limits against each other.
#include "tables.h"
#include <inttypes.h>

#define MIB (1LL << 20)
#define MEMORY_MAX (1LL << 50)
#define MINUTE 60000LL
#define HOUR (60 * MINUTE)

#define AT(member) offsetof(struct config_limits, member)
static const struct option limit_rows[] = {
    {.name = "max_header",
     .type = OPTION_SIZE,
     .offset = AT(max_header),
     .fallback = "\"8KiB\"",
     .min = 2048,
     .max = 32768,
     .help = "Maximum size of a request line with headers from a caller; a larger one is refused with 431. Each "
             "connection takes 4 KiB more than this in memory."},
    {.name = "max_body",
     .type = OPTION_SIZE,
     .offset = AT(max_body),
     .fallback = "\"64MiB\"",
     .min = 1024,
     .max = 1024 * MIB,
     .help = "Maximum size of a message from a caller; a larger message is refused with 413."},
    {.name = "max_message",
     .type = OPTION_SIZE,
     .offset = AT(max_message),
     .fallback = "\"80MiB\"",
     .min = 1024,
     .max = 1024 * MIB,
     .help = "Maximum size of a message from a server."},
    {.name = "memory",
     .type = OPTION_SIZE,
     .offset = AT(memory),
     .fallback = "\"1GiB\"",
     .min = 0,
     .max = MEMORY_MAX,
     .help = "Maximum number of bytes held in memory for all callers: bodies, calls in flight, answers that are being "
             "read or sent, and streams. At the limit, callers get 429 `memory_limit`, and the gateway stops reading "
             "from servers until memory is free. At least `max_message` plus twice `max_body`; 0: no limit."},
    {.name = "identity_memory",
     .type = OPTION_SIZE,
     .offset = AT(identity_memory),
     .fallback = "\"256MiB\"",
     .min = 0,
     .max = MEMORY_MAX,
     .help = "As `memory`, for each identity that is not anonymous, and for all unauthenticated requests together. At "
             "least `max_message` plus twice `max_body`; 0: no limit."},
    {.name = "connections",
     .type = OPTION_INT,
     .offset = AT(connections),
     .fallback = "4096",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of open connections for each listener. At the limit, a new connection closes the oldest "
             "connection without an authenticated request, or else the connection that has been idle longest."},
    {.name = "unauthenticated_connections",
     .type = OPTION_INT,
     .offset = AT(unauthenticated_connections),
     .fallback = "1024",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of open connections without an authenticated request, for each listener and address "
             "(IPv4, or the first 64 bits of IPv6). At the limit, a new connection closes the oldest of them. "
             "Connections over unix sockets and from `trusted_proxies` are not counted."},
    {.name = "sessions",
     .type = OPTION_INT,
     .offset = AT(sessions),
     .fallback = "10000",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of open caller sessions; further sessions are refused with 503."},
    {.name = "identity_sessions",
     .type = OPTION_INT,
     .offset = AT(identity_sessions),
     .fallback = "256",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of open caller sessions for each identity that is not anonymous; further sessions are "
             "refused with 503."},
    {.name = "processes",
     .type = OPTION_INT,
     .offset = AT(processes),
     .fallback = "512",
     .min = 1,
     .max = 100000,
     .help = "Maximum number of server processes. A call that needs another process gets the JSON-RPC error 429 "
             "`process_limit`, with HTTP status 200."},
    {.name = "identity_processes",
     .type = OPTION_INT,
     .offset = AT(identity_processes),
     .fallback = "64",
     .min = 1,
     .max = 100000,
     .help = "Maximum number of server processes for each identity that is not anonymous (isolation `user` or "
             "`session`). A call that needs another process gets the JSON-RPC error 429 `process_limit`."},
    {.name = "session_calls",
     .type = OPTION_INT,
     .offset = AT(session_calls),
     .fallback = "1000",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of calls in flight for each session."},
    {.name = "batch",
     .type = OPTION_INT,
     .offset = AT(batch),
     .fallback = "100",
     .min = 1,
     .max = 10000,
     .help = "Maximum number of messages in a JSON-RPC batch (revision 2025-03-26)."},
    {.name = "page_size",
     .type = OPTION_INT,
     .offset = AT(page_size),
     .fallback = "1000",
     .min = 1,
     .max = 100000,
     .help = "Maximum number of items on a page of a list."},
    {.name = "stream_buffer",
     .type = OPTION_SIZE,
     .offset = AT(stream_buffer),
     .fallback = "\"8MiB\"",
     .min = 1024,
     .max = 1024 * MIB,
     .help =
         "Maximum number of bytes that wait for a slow caller on a stream. If more bytes wait, the stream is closed."},
    {.name = "replay_events",
     .type = OPTION_INT,
     .offset = AT(replay_events),
     .fallback = "256",
     .min = 1,
     .max = 100000,
     .help = "Number of events kept on each stream for resumption with Last-Event-ID."},
    {.name = "header_timeout",
     .type = OPTION_DURATION,
     .offset = AT(header_timeout_ms),
     .fallback = "10",
     .min = 100,
     .max = HOUR,
     .help = "Time limit for a caller to send all headers of a request."},
    {.name = "body_timeout",
     .type = OPTION_DURATION,
     .offset = AT(body_timeout_ms),
     .fallback = "60",
     .min = 100,
     .max = HOUR,
     .help = "Time limit for a caller to send a whole body."},
    {.name = "unauthenticated_body_timeout",
     .type = OPTION_DURATION,
     .offset = AT(unauthenticated_body_timeout_ms),
     .fallback = "5",
     .min = 100,
     .max = HOUR,
     .help = "As `body_timeout`, on a connection that has not had an authenticated request; the shorter of the two "
             "applies. A request with a body larger than 16 KiB is authenticated before its body is read."},
    {.name = "min_rate",
     .type = OPTION_SIZE,
     .offset = AT(min_rate),
     .fallback = "\"1KiB\"",
     .min = 1,
     .max = 1024 * MIB,
     .help = "Minimum rate, in bytes per second, at which a caller must send a body, or read an answer or the messages "
             "that wait on its stream. The connection of a caller that is slower on average over 30 s (or half of "
             "`body_timeout`, if that is shorter) is closed. An idle stream stays open."},
    {.name = "idle_timeout",
     .type = OPTION_DURATION,
     .offset = AT(idle_timeout_ms),
     .fallback = "120",
     .min = 1000,
     .max = HOUR,
     .help = "How long a connection may be idle between requests."},
    {.name = "auth_failures",
     .type = OPTION_INT,
     .offset = AT(auth_failures),
     .fallback = "30",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of refused credentials from one address in `auth_window`. After that, callers from this "
             "address get 429, except callers with an open session."},
    {.name = "auth_window",
     .type = OPTION_DURATION,
     .offset = AT(auth_window_ms),
     .fallback = "60",
     .min = 1000,
     .max = 24 * HOUR,
     .help = "The period in which `auth_failures` are counted."},
    {.name = "rates",
     .type = OPTION_OBJECTS,
     .offset = AT(rates),
     .fallback = "[]",
     .sub = &config_rates_options,
     .help = "Limits on the calls of callers of the tenant `default`."},
    {0},
};
#undef AT
const struct option_table config_limits_options = {"Limits (limits)", sizeof(struct config_limits), limit_rows, NULL};

#define AT(member) offsetof(struct config_timeouts, member)
static const struct option timeout_rows[] = {
    {.name = "list",
     .type = OPTION_DURATION,
     .offset = AT(list_ms),
     .fallback = "5",
     .min = 1,
     .max = HOUR,
     .help = "How long the answer to a list request waits for a server that is starting or has just changed its lists, "
             "counted from the start or the change. After that, the answer contains the items that are known."},
    {.name = "stream_after",
     .type = OPTION_DURATION,
     .offset = AT(stream_after_ms),
     .fallback = "1",
     .min = 1,
     .max = HOUR,
     .help = "After this time without an answer, a call gets an event stream, with heartbeats."},
    {.name = "heartbeat",
     .type = OPTION_DURATION,
     .offset = AT(heartbeat_ms),
     .fallback = "15",
     .min = 100,
     .max = HOUR,
     .help = "Interval between comment lines on idle event streams, which make proxies keep the streams open."},
    {.name = "retry",
     .type = OPTION_DURATION,
     .offset = AT(retry_ms),
     .fallback = "1",
     .min = 1,
     .max = HOUR,
     .help = "The reconnection time sent to callers (`retry:`)."},
    {.name = "session_idle",
     .type = OPTION_DURATION,
     .offset = AT(session_idle_ms),
     .fallback = "3600",
     .min = 1000,
     .max = 168 * HOUR,
     .help = "The time without a request or an open stream after which a session ends."},
    {.name = "resume",
     .type = OPTION_DURATION,
     .offset = AT(resume_ms),
     .fallback = "300",
     .min = 1000,
     .max = 24 * HOUR,
     .help = "How long the stream of a finished call can be resumed."},
    {.name = "ask",
     .type = OPTION_DURATION,
     .offset = AT(ask_ms),
     .fallback = "600",
     .min = 1000,
     .max = 24 * HOUR,
     .help = "Time limit for a caller to answer a request of a server (sampling, elicitation, roots)."},
    {.name = "shutdown",
     .type = OPTION_DURATION,
     .offset = AT(shutdown_ms),
     .fallback = "5",
     .min = 100,
     .max = HOUR,
     .help = "Time limit of a shutdown: for calls in flight to finish, and then for servers to stop."},
    {0},
};
#undef AT
const struct option_table config_limits_timeouts = {"Timeouts (timeouts)", sizeof(struct config_timeouts), timeout_rows,
                                                    NULL};

static const struct option tenant_limit_rows[] = {
    {.name = "rates",
     .type = OPTION_OBJECTS,
     .offset = offsetof(struct config_tenant_limits, rates),
     .fallback = "[]",
     .sub = &config_rates_options,
     .help = "Rate limits on calls of the tenant's callers. The top-level `limits.rates` do not apply to this tenant."},
    {.name = "sessions",
     .type = OPTION_INT,
     .offset = offsetof(struct config_tenant_limits, sessions),
     .fallback = "2500",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of open caller sessions of this tenant, within the top-level limit; further sessions are "
             "refused with 503."},
    {.name = "processes",
     .type = OPTION_INT,
     .offset = offsetof(struct config_tenant_limits, processes),
     .fallback = "256",
     .min = 1,
     .max = 100000,
     .help = "Maximum number of server processes of this tenant, within the top-level limit. A call that needs another "
             "process gets the JSON-RPC error 429 `process_limit`."},
    {.name = "memory",
     .type = OPTION_SIZE,
     .offset = offsetof(struct config_tenant_limits, memory),
     .fallback = "\"512MiB\"",
     .min = 0,
     .max = MEMORY_MAX,
     .help = "Maximum number of bytes held for the tenant's callers, within the top-level limit; see `limits.memory`."},
    {0},
};
const struct option_table config_limits_of_tenant = {"Limits of a tenant (tenants.NAME.limits)",
                                                     sizeof(struct config_tenant_limits), tenant_limit_rows, NULL};

static bool check_memory(const struct config *config, int64_t bytes, const char *file, const char *path,
                         struct err *err)
{
    int64_t least = config->limits.max_message + 2 * config->limits.max_body;
    return bytes == 0 || bytes >= least ||
           err_set(err, ERR_CONFIG,
                   "%s: %s: %" PRId64 " bytes are less than the %" PRId64 " of /limits/max_message (%" PRId64
                   ") plus twice /limits/max_body (%" PRId64 "); raise it, or lower those limits",
                   file, path, bytes, least, config->limits.max_message, config->limits.max_body);
}

bool config_limits_check_tenants(const struct config *config, size_t first, const char *file, const char *folder,
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

bool config_limits_check_memory(const struct config *config, const char *file, struct err *err)
{
    return check_memory(config, config->limits.memory, file, "/limits/memory", err) &&
           check_memory(config, config->limits.identity_memory, file, "/limits/identity_memory", err);
}
