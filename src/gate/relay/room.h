// Declarations that only the files of this room use.
#ifndef GATE_RELAY_ROOM_H
#define GATE_RELAY_ROOM_H

#include "gate/relay/relay.h"

// ---- relay.c
void relay_notification(struct link *link, const struct message *message, struct upstream_request *origin);
void relay_list_changed(struct session *session, unsigned kinds);  // to one session
void relay_lists_changed(struct link *link, unsigned kinds);       // to all sessions that see the server

// ---- ask.c: questions of servers to callers
void ask_start(struct link *link, const struct message *message, struct upstream_request *origin);
void ask_on_cancelled(struct link *link, struct span params);
void ask_drop_session(struct session *session);
void ask_drop_link(struct link *link);

// ---- caller_task.c: tasks that callers run for servers
bool caller_task_asks(enum method method);  // true for a request about such a task
// Why the server may not send the request, and the code of the error; NULL: it may.
const char *caller_task_problem(const struct link *link, const struct session *session, const struct message *message,
                                int *code);
void caller_task_put_params(enum method method, struct span params, struct buf *out);
void caller_task_note(struct link *link,
                      struct span result);  // of a caller that may have answered a question with a task
void caller_task_put_list(const struct link *link, struct span result, struct buf *out);  // of tasks/list

// ---- subscription.c
void subscription_add(struct session *session, struct link *link, struct span uri);  // of the session's scope
void subscription_drop_session(struct session *session);
// The session has another scope: moves subscriptions to servers that were changed, and ends those to servers that were removed.
void subscription_move(struct session *session);
void subscription_renew(struct link *link);
void subscription_recheck(struct session *session);  // ends subscriptions that the policy no longer allows
void subscription_fan_out(struct link *link, const struct message *message);

// ---- task_news.c: notifications about tasks whose owner is not known yet
void task_news_put(const struct fan_out *news);  // its key is the id of the task; delivered now or later
void task_news_drop(struct link *link);

// ---- roots.c: the roots that a server shared by several sessions may have
bool roots_may_pass(const struct link *link, const struct session *session);
struct session *roots_only_session(const struct link *link);  // the session that may be asked without a call, or NULL
void roots_given(struct link *link, const struct session *session);
void roots_forget(struct link *link);               // when the server is down
void roots_recheck(const struct session *session);  // if it may use servers that have roots of another identity

// ---- level.c
// The log level of a server is the lowest level of the sessions that may use anything of it.
void level_push(struct link *link);                                         // sets the level, if it has changed
void level_session_ends(struct link *link, const struct session *session);  // after the session has left its scope

#endif
