// The checks that the HTTP face makes before it accepts a request: framing, Host and Origin, and the headers it reads.
#ifndef FRONT_GUARD_H
#define FRONT_GUARD_H

#include "base/err.h"
#include "base/span.h"
#include "config/front.h"
#include <microhttpd.h>

// The headers that the gateway reads, each at most once; `at` is NULL if the header is absent.
struct guard_headers {
    struct span accept[2];
    struct span host, origin, content_type, session_id, version, last_event_id, content_length, transfer_encoding,
        authorization;
};

// The request line as libmicrohttpd hands it over: pointers into its buffer.
struct guard_line {
    const char *method, *url, *version;
};

// Checks limits.max_header. The library itself answers 431 if the headers exceed the memory of the connection.
bool guard_size(struct MHD_Connection *connection, const struct config_front *config, struct err *err) MUST_CHECK;
// Reads all headers; ERR_BAD_FRAMING for anything two parsers could read differently.
bool guard_read(struct MHD_Connection *connection, const struct guard_line *line, struct guard_headers *out,
                struct err *err) MUST_CHECK;
// Against DNS rebinding (Host) and cross-site requests (Origin).
bool guard_host(const struct config_front *config, const struct guard_headers *headers, struct err *err) MUST_CHECK;
bool guard_is_loopback(
    struct span host);  // does the Host header name this machine? "localhost:8080", "127.0.0.1", "[::1]:80"
bool guard_origin(const struct config_front *config, const struct guard_headers *headers, struct err *err) MUST_CHECK;

// Does an Accept header accept the type: exactly, by type/* or by */*?
bool guard_accepts(const struct guard_headers *headers, const char *type);
bool guard_is_json(struct span content_type);

#endif
