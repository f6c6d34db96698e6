// Notifications and questions of servers, and the sessions that they go to; the beginning and end of sessions.
#ifndef GATE_RELAY_RELAY_H
#define GATE_RELAY_RELAY_H

#include "gate/server/server.h"

// ---- events.c
extern const struct link_events events_of_links;

// ---- ask.c: questions of servers to callers
void ask_on_answer(struct session *session, const struct message *message, struct blob *body);
void ask_note_error(struct link *link, const struct session *session, struct span error);  // to a call of the session
// Handles an invalid message of a caller that may be the answer to a question; the message loses its id if it is. `session` may be
// NULL, if no question can be open.
void ask_on_invalid(struct session *session, struct message *message);
void ask_on_progress(struct call *call, struct span token);

// ---- caller_task.c: tasks that callers run for servers
void caller_task_on_status(struct session *session, struct span params);

// ---- task_news.c: notifications about tasks whose owner is not known yet
void task_news_expect(struct call *call);  // the call asks its server for a task
void task_news_over(struct call *call);    // the call was answered to its caller, or has ended without an answer

// ---- roots.c: the roots that a server shared by several sessions may have
void roots_session_ready(const struct session *session);
void roots_changed(const struct session *session, struct span params);  // notified by the caller

// ---- recheck.c
void recheck_identity(struct session *session,
                      const struct identity *identity);         // a newer proof of it, maybe with other roles
void recheck_tenant(struct gate *gate, struct tenant *tenant);  // after its policy was replaced
void recheck_sweep(struct gate *gate);                          // rules may have expired

// ---- session_life.c
void session_life_begin(struct session *session, enum revision revision, struct span capabilities);
void session_life_end(struct session *session);
void session_life_sweep(struct session *session);  // ends it if it was idle for too long
// Gives the session, whose scope was detached by a reload, a scope of the new configuration. recheck_tenant() has to follow.
void session_life_move(struct session *session);

// ---- subscription.c
bool subscription_is_first(const struct link *link, struct span uri);
// After the server has accepted it. A session that uses another process of the server by now subscribes there.
void subscription_begin(struct session *session, struct link *link, struct span uri);
void subscription_give_up(struct link *link, struct span uri);  // at the server, unless another session has it
void subscription_remove(struct session *session, struct link *link, struct span uri);  // no effect if not subscribed

// ---- level.c
int level_parse(struct span raw_string);                           // raw JSON; -1 if it is not a level
void level_set(struct link *link, const struct session *session);  // after the session has set its level
void level_sweep(struct gate *gate);                               // raises levels that no session needs any more

#endif
