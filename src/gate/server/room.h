// Declarations that only the files of this room use.
#ifndef GATE_SERVER_ROOM_H
#define GATE_SERVER_ROOM_H

#include "gate/server/server.h"

// Finds or makes the link, with a reference for a scope. A server of this session alone gets the capabilities of its caller.
struct link *link_get(struct gate *gate, const struct server *server, struct session *session);
void link_close(struct link *link, int64_t within_ms);
void link_put_key(const struct session *session, int isolation, struct buf *out);  // the key of the sharers
void task_wrap(const struct task_seal *seal, struct span id, struct buf *out);
void fan_out_use_ends(const struct link *link, const struct scope_use *use);  // before the link forgets the scope
void fan_out_drop_all(struct link *link);

struct task_seal task_seal(const struct link *link, const struct identity *owner);

#endif
