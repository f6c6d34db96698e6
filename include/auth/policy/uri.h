// The canonical spelling of a URI, which a URI must have before a rule is evaluated for it.
#ifndef AUTH_POLICY_URI_H
#define AUTH_POLICY_URI_H

#include "base/buf.h"
#include "base/span.h"

#define POLICY_URI_MAX 8192  // bytes

// Appends the canonical spelling of a URI, or of a pattern for URIs. False, with nothing appended, if it does not exist or
// for a template.
bool policy_uri_put_canonical(struct span uri, bool template, struct buf *out);

#endif
