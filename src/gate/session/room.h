// What the files of this room share and no other room uses.
#ifndef GATE_SESSION_ROOM_H
#define GATE_SESSION_ROOM_H

#include "gate/session/call.h"

// Of the rows with this `per` that match the call, the one that counts it, or NULL. They are compared by tool, then
// by server, then by subject: naming one beats not naming one, a name beats a pattern, a user beats a role; of
// equal rows the earlier one counts.
const struct config_rate *limit_find(const struct option_items *rates, enum config_per per,
                                     const struct limit_call *call);

// Of these rows, which outlive it or are replaced by limit_renew(); NULL: there are none. It is counted, also by what calls hold.
struct limit *limit_new(const struct option_items *rates);
void limit_unref(struct limit *limit);
// The limits of other rows: the same object if they say the same, so that what was counted counts on. `limit` may be NULL.
struct limit *limit_renew(struct limit *limit, const struct option_items *rates);

void server_runtime_forget(struct tenant *tenant, bool all);  // those of servers that the tenant does not have, or all

void memory_set_tenant(struct tenant *tenant, int64_t bound);

struct stream *session_stream_new(struct session *session);
void session_stream_done(struct session *session, struct stream *stream);

struct stream *stream_new(unsigned index, bool resumable, const struct stream_limits *limits);
// A message that is in parts has no line ends, so that faces need not look for them.
void stream_push(struct stream *stream, struct blob *message);    // takes over the reference
void stream_answer(struct stream *stream, struct blob *message);  // the same, for what the caller asked for
void stream_end(struct stream *stream);  // nothing follows; the connection closes when all is sent
bool stream_ended(const struct stream *stream);
size_t stream_kept(const struct stream *stream);  // bytes held for replay or unsent

#endif
