// What the files of this room share and no other room uses.
#ifndef GATE_RELAY_ROOM_H
#define GATE_RELAY_ROOM_H

#include "gate/relay/relay.h"

// ---- relay.c
void relay_notification(struct link *link, const struct message *message, struct upstream_request *origin);
void relay_list_changed(struct session *session, unsigned kinds);  // to one session
void relay_lists_changed(struct link *link, unsigned kinds);       // to those that see the server

// ---- ask.c: questions of servers to callers
void ask_start(struct link *link, const struct message *message, struct upstream_request *origin);
void ask_on_cancelled(struct link *link, struct span params);
void ask_drop_session(struct session *session);
void ask_drop_link(struct link *link);

// ---- caller_task.c: tasks that callers run for servers
bool caller_task_asks(enum method method);  // about such a task
// Why the server may not ask that, and the code to say so with; NULL: it may.
const char *caller_task_problem(const struct link *link, const struct session *session, const struct message *message,
                                int *code);
void caller_task_put_params(enum method method, struct span params, struct buf *out);
void caller_task_note(struct link *link, struct span result);  // of the caller, who may have made a task of a question
void caller_task_put_list(const struct link *link, struct span result, struct buf *out);  // of tasks/list

// ---- subscription.c
void subscription_drop_session(struct session *session);
// The session has another scope: to servers that were changed the subscriptions move, to those that are gone they end.
void subscription_move(struct session *session);
void subscription_renew(struct link *link);
void subscription_recheck(struct session *session);  // ends what the policy does not allow any more
void subscription_fan_out(struct link *link, const struct message *message);

// ---- task_news.c: news of tasks whose owner is not known yet
void task_news_put(const struct fan_out *news);  // about the task whose id is its key; tells it now or later
void task_news_drop(struct link *link);

// ---- roots.c: whose roots a server that several sessions share may have
bool roots_may_pass(const struct link *link, const struct session *session);
struct session *roots_only_session(const struct link *link);  // the one that may be asked without a call; NULL: none
void roots_given(struct link *link, const struct session *session);
void roots_forget(struct link *link);               // it is down
void roots_recheck(const struct session *session);  // it may use servers that have roots of another identity

// ---- level.c
// Which level a server is asked for: the lowest that a session wants which may use anything of it.
void level_push(struct link *link);                                         // asks, if it has another one
void level_session_ends(struct link *link, const struct session *session);  // it is no longer in its scope

#endif
