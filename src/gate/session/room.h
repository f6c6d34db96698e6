// Declarations that only the files of this room use.
#ifndef GATE_SESSION_ROOM_H
#define GATE_SESSION_ROOM_H

#include "gate/session/call.h"

// Finds the row that counts the call, among the matching rows with this `per`; or NULL. Rows are compared by tool, then by server,
// then by subject. A row with this selector precedes a row without it, a name precedes a pattern, a user precedes a role, and the
// earlier of two equal rows is used.
const struct config_rate *limit_find(const struct option_items *rates, enum config_per per,
                                     const struct limit_call *call);

// Makes the limits of these rows, which must outlive it or be replaced by limit_renew(). NULL: no rows. The object is counted, also by
// the slots that calls hold.
struct limit *limit_new(const struct option_items *rates);
void limit_unref(struct limit *limit);
// Replaces the rows. If they are equal, the object and its counts are kept. `limit` may be NULL.
struct limit *limit_renew(struct limit *limit, const struct option_items *rates);

void server_runtime_forget(struct tenant *tenant, bool all);  // those of servers that the tenant does not have, or all

void memory_set_tenant(struct tenant *tenant, int64_t bound);

struct stream *session_stream_new(struct session *session);
void session_stream_done(struct session *session, struct stream *stream);

struct stream *stream_new(unsigned index, bool resumable, const struct stream_limits *limits);
// A message in several parts must not contain line ends, because faces do not search it for them.
void stream_push(struct stream *stream, struct blob *message);    // takes over the reference
void stream_answer(struct stream *stream, struct blob *message);  // the same, for the answer to a request of the caller
void stream_end(struct stream *stream);  // no message follows; the connection is closed when all messages are sent
bool stream_ended(const struct stream *stream);
size_t stream_kept(const struct stream *stream);  // bytes held for replay or unsent

#endif
