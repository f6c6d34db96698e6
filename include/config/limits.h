// Bounds and timeouts in the configuration.
#ifndef CONFIG_LIMITS_H
#define CONFIG_LIMITS_H

#include "base/option.h"

// The callers whose calls a limit counts together.
enum config_per { CONFIG_PER_TENANT, CONFIG_PER_IDENTITY, CONFIG_PERS };

// A limit on calls; see src/config/rates.c.
struct config_rate {
    char *server, *tool, *subject;  // NULL: any
    int per;                        // enum config_per
    int64_t calls, window_ms, burst;
    int64_t concurrent;  // 0: any number, and likewise calls
};

extern const struct option_table config_rates_options;  // of struct config_rate

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

#endif
