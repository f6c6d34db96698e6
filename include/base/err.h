// The one error type: a code from the table below, where it was set, and detail for the operator.
//
// A function that can fail takes `struct err *` last and returns bool or a pointer. The caller-facing
// text, HTTP status and JSON-RPC code come from the table; `detail` goes to the log only.
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>
#include <stdint.h>

#define MUST_CHECK __attribute__((warn_unused_result))

// clang-format off
//   name                 HTTP  JSON-RPC  reason                   text for the caller
#define ERR_TABLE(X)                                                                               \
    X(NONE,                200,      0, "none",                   "no error")                      \
    X(INTERNAL,            500, -32603, "internal_error",         "Internal error")                \
    X(PARSE,               400, -32700, "parse_error",            "Parse error: the body is not valid JSON") \
    X(INVALID_REQUEST,     400, -32600, "invalid_request",        "Invalid request")               \
    X(METHOD_NOT_FOUND,    200, -32601, "method_not_found",       "Method not found")              \
    X(INVALID_PARAMS,      200, -32602, "invalid_params",         "Invalid params")                \
    X(UNKNOWN_TOOL,        200, -32602, "unknown_tool",           "Unknown tool")                  \
    X(UNKNOWN_PROMPT,      200, -32602, "unknown_prompt",         "Unknown prompt")                \
    X(UNKNOWN_RESOURCE,    200, -32002, "unknown_resource",       "Resource not found")            \
    X(UNKNOWN_TASK,        200, -32602, "unknown_task",           "Unknown task")                  \
    X(BAD_CURSOR,          200, -32602, "bad_cursor",             "Invalid or stale cursor: list again without one") \
    X(UPSTREAM_DIED,       200, -32001, "upstream_died",          "The server ended before it answered") \
    X(UPSTREAM_TIMEOUT,    200, -32001, "upstream_timeout",       "The server did not answer in time") \
    X(UPSTREAM_INVALID,    200, -32001, "upstream_invalid",       "The server sent an invalid answer") \
    X(UPSTREAM_TRANSPORT,  200, -32001, "upstream_transport",     "The server could not be reached, or answered with an HTTP error") \
    X(UNAVAILABLE,         200, -32002, "server_unavailable",     "The server is not available")   \
    X(NO_PROFILE,          404, -32000, "profile_not_found",      "Profile not found")             \
    X(NOT_FOUND,           404, -32000, "not_found",              "Not found: the gateway does not serve this path") \
    X(BAD_METHOD,          405, -32000, "method_not_allowed",     "Method not allowed")            \
    X(NOT_ACCEPTABLE,      406, -32000, "not_acceptable",         "Not Acceptable: Accept must list application/json and text/event-stream") \
    X(NOT_ACCEPTABLE_GET,  406, -32000, "not_acceptable",         "Not Acceptable: Accept must list text/event-stream") \
    X(MEDIA_TYPE,          415, -32000, "unsupported_media_type", "Unsupported Media Type: Content-Type must be application/json") \
    X(TOO_LARGE,           413, -32000, "too_large",              "The message is too large")      \
    X(HEADER_TOO_LARGE,    431, -32000, "header_too_large",       "The request line and headers are too large") \
    X(BAD_FRAMING,         400, -32000, "bad_request",            "Bad request: ambiguous or malformed HTTP headers") \
    X(BAD_HOST,            403, -32000, "forbidden_host",         "Forbidden: this Host is not served here") \
    X(BAD_ORIGIN,          403, -32000, "forbidden_origin",       "Forbidden: this Origin may not call the gateway") \
    X(NO_SESSION,          400, -32000, "session_missing",        "Bad request: Mcp-Session-Id header is required") \
    X(UNKNOWN_SESSION,     404, -32001, "session_unknown",        "Session not found")             \
    X(BAD_VERSION,         400, -32022, "unsupported_version",    "Unsupported protocol version: send initialize, which negotiates one") \
    X(STREAM_CONFLICT,     409, -32000, "stream_conflict",        "Conflict: this session already has a stream") \
    X(UNKNOWN_EVENT,       400, -32000, "event_unknown",          "Bad request: the event to resume after is no longer stored") \
    X(NOT_INITIALIZED,     400, -32600, "not_initialized",        "Invalid request: send initialize first") \
    X(ALREADY_INITIALIZED, 400, -32600, "already_initialized",    "Invalid request: the session is already initialized") \
    X(UNAUTHENTICATED,     401, -32000, "unauthenticated",        "Authentication is required")    \
    X(AUTH_LIMITED,        429,    429, "auth_limited",           "Too many failed authentications; try again later") \
    X(SCOPE,               403, -32000, "insufficient_scope",     "The token lacks a required scope") \
    X(AUTH_UNAVAILABLE,    503, -32000, "auth_unavailable",       "Authentication is not available now; try again later") \
    X(LOGIN,               200, -32003, "authorization_required", "The server requires authorization that was not granted") \
    X(LOGIN_URL,           200, -32042, "authorization_required", "The server requires authorization that was not granted") \
    X(DENIED,              200,    403, "denied",                 "Denied by policy")              \
    X(LIMITED,             200,    429, "limited",                "Too many requests")             \
    X(PROCESSES,           200,    429, "process_limit",          "Too many server processes are running: close sessions you do not need, or try again later") \
    X(MEMORY,              429,    429, "memory_limit",           "The gateway has reached its memory limit: read the pending answers, or try again later") \
    X(TOO_MANY,            503, -32000, "overloaded",             "The gateway is overloaded; try again later") \
    X(UNRECORDED,          200, -32000, "audit_unavailable",      "The call could not be recorded, so its outcome is not returned; the server may have processed it") \
    X(SHUTTING_DOWN,       503, -32000, "shutting_down",          "The gateway is shutting down")  \
    X(CANCELLED,           200, -32800, "cancelled",              "The call was cancelled")        \
    X(CONFIG,              500, -32603, "config",                 "Configuration error")           \
    X(SYSTEM,              500, -32603, "system",                 "System error")
// clang-format on

enum err_code {
#define X(name, http, rpc, reason, text) ERR_##name,
    ERR_TABLE(X)
#undef X
        ERR_CODES
};

struct err {
    enum err_code code;
    const char *where;
    int64_t retry_after_ms;  // it may help to try again then; 0: not known when
    const char *option;      // the option whose time limit expired, shown to the caller; NULL: not a time limit
    int64_t option_ms;       // its value
    char detail[512];
};

#define ERR_STRING2(x) #x
#define ERR_STRING(x) ERR_STRING2(x)

// Sets the error and returns false, so that `return err_set(err, ERR_PARSE, "…");` reads well.
#define err_set(err, code, ...) err_set_at((err), (code), __FILE__ ":" ERR_STRING(__LINE__), __VA_ARGS__)
bool err_set_at(struct err *err, enum err_code code, const char *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

int err_http_status(enum err_code code);
int err_rpc_code(enum err_code code);
const char *err_reason(enum err_code code);
const char *err_text(enum err_code code);

#endif
