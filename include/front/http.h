// The HTTP face: Streamable HTTP at /mcp and HTTP+SSE at /mcp and /sse, on one or more listeners.
#ifndef FRONT_HTTP_H
#define FRONT_HTTP_H

#include "base/err.h"
#include "config/front.h"
#include "gate/gate.h"
#include "loop/loop.h"

struct http_face;

// Listens on an address such as "127.0.0.1:0" or "unix:/run/postern.sock" and logs the URL it serves. With the
// options of the listener that the configuration has at this address: TLS, mode.
struct http_face *http_face_new(struct loop *loop, struct gate *gate, const char *address, struct err *err) MUST_CHECK;
// Can the certificate and key of this listener be used?
bool http_face_check(const struct config *config, const struct config_listener *listener, struct err *err) MUST_CHECK;
// Descriptors that a listener with so many connections takes.
int64_t http_face_descriptors(int64_t connections);
void http_face_poll(struct http_face *face);           // reads its certificate again if its files have changed
void http_face_reload(struct http_face *face);         // reads its certificate again now; a broken one changes nothing
bool http_face_failing(const struct http_face *face);  // its certificate changed and cannot be taken over
void http_face_quiesce(struct http_face *face);        // stops accepting; what is open goes on to its next answer
bool http_face_busy(const struct http_face *face);     // an answer is still being sent
void http_face_free(struct http_face *face);

#endif
