// What a server sends, from its transport.
#ifndef UPSTREAM_RECEIVE_H
#define UPSTREAM_RECEIVE_H

#include "parsing.h"
#include "upstream.h"

// `owner`: whose memory the text is in; NULL: it is copied where it is kept. `origin`: the request on whose own stream it came.
void receive_message(struct upstream *upstream, struct span text, struct blob *owner, struct upstream_request *origin);
void receive_parsed(struct upstream *upstream, const struct parsing *parsing, struct upstream_request *origin);
// A message that is not kept, because it is above the maximum or for lack of memory: `head` is how it begins.
void receive_dropped(struct upstream *upstream, struct span head, bool no_memory, struct upstream_request *origin);

#endif
