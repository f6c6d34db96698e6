// What the HTTP face checks before a request counts: framing, Host and Origin, and the headers we read.
#ifndef FRONT_GUARD_H
#define FRONT_GUARD_H

#include "base/err.h"
#include "base/span.h"
#include "config/front.h"
#include <microhttpd.h>

// The headers that matter to us, each at most once; at is NULL where absent.
struct guard_headers {
    struct span accept[2];
    struct span host, origin, content_type, session_id, version, last_event_id, content_length, transfer_encoding,
        authorization;
};

// The request line as libmicrohttpd hands it over: pointers into its buffer.
struct guard_line {
    const char *method, *url, *version;
};

// limits.max_header. What does not even fit into the connection's memory is answered 431 by the library.
bool guard_size(struct MHD_Connection *connection, const struct config_front *config, struct err *err) MUST_CHECK;
// Reads all headers; ERR_BAD_FRAMING for anything two parsers could read differently.
bool guard_read(struct MHD_Connection *connection, const struct guard_line *line, struct guard_headers *out,
                struct err *err) MUST_CHECK;
// DNS rebinding and cross-site calls: who was meant, and from where.
bool guard_host(const struct config_front *config, const struct guard_headers *headers, struct err *err) MUST_CHECK;
bool guard_is_loopback(
    struct span host);  // "localhost:8080", "127.0.0.1", "[::1]:80": what is in Host names this machine
bool guard_origin(const struct config_front *config, const struct guard_headers *headers, struct err *err) MUST_CHECK;

// Exactly, by type/* or by */*.
bool guard_accepts(const struct guard_headers *headers, const char *type);
bool guard_is_json(struct span content_type);

#endif
