// Messages from a server, as its transport delivers them.
#ifndef UPSTREAM_RECEIVE_H
#define UPSTREAM_RECEIVE_H

#include "parsing.h"
#include "upstream.h"

// `owner`: the blob that contains the text; NULL: a receiver that keeps the text copies it. `origin`: the request on whose own
// stream the message came, or NULL.
void receive_message(struct upstream *upstream, struct span text, struct blob *owner, struct upstream_request *origin);
void receive_parsed(struct upstream *upstream, const struct parsing *parsing, struct upstream_request *origin);
// A message that was dropped because it is above the maximum, or for lack of memory. `head` is its beginning.
void receive_dropped(struct upstream *upstream, struct span head, bool no_memory, struct upstream_request *origin);

#endif
