// The HTTP face: Streamable HTTP at /mcp and HTTP+SSE at /mcp and /sse, on one or more listeners.
#ifndef FRONT_HTTP_H
#define FRONT_HTTP_H

#include "base/err.h"
#include "config/front.h"
#include "gate/gate.h"
#include "loop/loop.h"

struct http_face;

struct http_face_spec {
    struct loop *loop;
    struct gate *gate;
    const struct config *config;  // perhaps not in force yet
    const struct config_listener *listener;
    const struct http_face *predecessor;  // that has the socket; NULL: it is opened
};
// Listens on an address such as "127.0.0.1:0" or "unix:/run/postern.sock".
struct http_face *http_face_new(const struct http_face_spec *spec, struct err *err) MUST_CHECK;
// The configuration in force is another one, or the first. `predecessor` gives up its socket; it may be NULL.
void http_face_configure(struct http_face *face, const struct config_listener *listener, struct http_face *predecessor);
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
