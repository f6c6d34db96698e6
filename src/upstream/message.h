// What of sending messages only the upstream itself uses.
#ifndef UPSTREAM_MESSAGE_H
#define UPSTREAM_MESSAGE_H

#include "upstream.h"

// A notification goes out: some servers answer it, without an id, and that is meant for no request.
void upstream_message_note_told(struct upstream *upstream);

#endif
