// Resource URIs in the merged space: a server's URIs get its key in front, and lose it again.
#ifndef MCP_URI_H
#define MCP_URI_H

#include "base/buf.h"
#include "base/span.h"
#include <stdbool.h>

// postern://<key>/<uri>, so that expansions of a wrapped template unwrap too; ui://x (MCP Apps, whose
// hosts insist on the scheme) becomes ui://<key>/x.
void uri_wrap(struct span key, struct span uri, struct buf *out);
// The other way: false if it is not wrapped. `key` points into `uri`; the original is appended.
bool uri_unwrap(struct span uri, struct span *key, struct buf *original);

bool uri_is_web(struct span uri);  // http: or https:
// Could this URI be an expansion of the RFC 6570 template?
bool uri_matches_template(struct span uri, struct span uri_template);

#endif
