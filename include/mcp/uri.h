// Resource URIs in a merged view: a server's URIs are wrapped with its key, and unwrapped again.
#ifndef MCP_URI_H
#define MCP_URI_H

#include "base/buf.h"
#include "base/span.h"
#include <stdbool.h>

// Appends postern://<key>/<uri>, so that expansions of a wrapped template can be unwrapped, too. ui://x (MCP Apps, whose
// hosts require the scheme) becomes ui://<key>/x.
void uri_wrap(struct span key, struct span uri, struct buf *out);
// The reverse. False: the URI is not wrapped. `key` points into `uri`; the original is appended.
bool uri_unwrap(struct span uri, struct span *key, struct buf *original);

bool uri_is_web(struct span uri);  // http: or https:
// True if this URI may be an expansion of the RFC 6570 template.
bool uri_matches_template(struct span uri, struct span uri_template);

#endif
