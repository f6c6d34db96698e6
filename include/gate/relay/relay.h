// What servers say and ask on their own, and to which sessions it goes; what begins and ends with a session.
#ifndef GATE_RELAY_RELAY_H
#define GATE_RELAY_RELAY_H

#include "gate/server/server.h"

// ---- events.c
extern const struct link_events events_of_links;

// ---- ask.c: questions of servers to callers
void ask_on_answer(struct session *session, const struct message *message, struct blob *body);
void ask_note_error(struct link *link, const struct session *session, struct span error);  // to a call of the session
// A message that is not valid, and has lost its id if it is meant as an answer. `session` may be NULL: then no question
// is open.
void ask_on_invalid(struct session *session, struct message *message);
void ask_on_progress(struct call *call, struct span token);

// ---- caller_task.c: tasks that callers run for servers
void caller_task_on_status(struct session *session, struct span params);

// ---- task_news.c: news of tasks whose owner is not known yet
void task_news_expect(struct call *call);  // asks its server for a task
void task_news_over(struct call *call);    // was answered to its caller, or will not be

// ---- roots.c: whose roots a server that several sessions share may have
void roots_session_ready(const struct session *session);
void roots_changed(const struct session *session, struct span params);  // its caller says so

// ---- recheck.c
void recheck_identity(struct session *session,
                      const struct identity *identity);         // its newest proof; roles may be others
void recheck_tenant(struct gate *gate, struct tenant *tenant);  // its policy is another now
void recheck_sweep(struct gate *gate);                          // rules may have expired

// ---- session_life.c
void session_life_begin(struct session *session, enum revision revision, struct span capabilities);
void session_life_end(struct session *session);
void session_life_sweep(struct session *session);  // ends it if it was idle for too long
// Its scope was detached by a reload: it gets the one that the configuration says now. recheck_tenant() is to follow.
void session_life_move(struct session *session);

// ---- subscription.c
bool subscription_is_first(const struct link *link, struct span uri);
void subscription_add(struct session *session, struct link *link, struct span uri);
void subscription_give_up(struct link *link, struct span uri);  // at the server, unless another session has it
void subscription_remove(struct session *session, struct link *link, struct span uri);  // harmless if it has none

// ---- level.c
int level_parse(struct span raw_string);                           // raw JSON; -1 if it is not a level
void level_set(struct link *link, const struct session *session);  // the session has set its own
void level_sweep(struct gate *gate);                               // for servers that may be asked for less now

#endif
