// The resources that the HTTP face needs, for checks before it is opened.
#ifndef FRONT_HTTP_H
#define FRONT_HTTP_H

#include "base/err.h"
#include "config/front.h"

// Checks that the certificate and key of this listener can be used.
bool http_face_check(const struct config *config, const struct config_listener *listener, struct err *err) MUST_CHECK;
// Descriptors that a listener with this many connections needs.
int64_t http_face_descriptors(int64_t connections);

#endif
