// Sending of messages: the part that only the upstream itself uses.
#ifndef UPSTREAM_MESSAGE_H
#define UPSTREAM_MESSAGE_H

#include "upstream.h"

// Notes that a notification is sent. Some servers answer it, without an id, and that answer belongs to no request.
void upstream_message_note_told(struct upstream *upstream);

#endif
