// Declarations that only the files of this room use.
#ifndef GATE_SERVER_ROOM_H
#define GATE_SERVER_ROOM_H

#include "gate/server/server.h"

// Finds or makes the link, with a reference for a scope. A server of this session alone gets the capabilities of its caller.
struct link *link_get(struct gate *gate, const struct server *server, struct session *session);
void link_close(struct link *link, int64_t within_ms);
// The key of the sharers.
void link_put_key(const struct identity *who, const struct session *session, int isolation, struct buf *out);
extern const char link_capabilities[];                           // the gateway's, for a shared server
void kept_begin(struct link *link, const struct identity *who);  // looks up the lists of a new link
void kept_save(struct link *link);                               // unless they are saved, or incomplete
void kept_retire(struct link *link);                             // saves them for the last time
void kept_end(struct link *link);
void kept_forget_server(const struct gate *gate, const char *tenant, const struct server *server);
// The average interval between requests (0: not known), with the time since the last one.
int64_t idle_average(int64_t interval_ms, int64_t since_ms);
// How long a server may be idle, by the average interval of its requests (0: not known), and whether it was used since it started.
int64_t idle_limit(const struct server *server, int64_t interval_ms, bool used);
void kept_forget_link(struct link *link);  // its grant was replaced
void kept_recheck(struct link *link);      // forgets restored lists whose grant another process has deleted or replaced
void task_wrap(const struct task_seal *seal, struct span id, struct buf *out);
void fan_out_use_ends(const struct link *link, const struct scope_use *use);  // before the link forgets the scope
void fan_out_drop_all(struct link *link);

struct task_seal task_seal(const struct link *link, const struct identity *owner);

#endif
