// What the HTTP face needs from the system, for checks before it is opened.
#ifndef FRONT_HTTP_H
#define FRONT_HTTP_H

#include "base/err.h"
#include "config/front.h"

// Can the certificate and key of this listener be used?
bool http_face_check(const struct config *config, const struct config_listener *listener, struct err *err) MUST_CHECK;
// Descriptors that a listener with so many connections takes.
int64_t http_face_descriptors(int64_t connections);

#endif
