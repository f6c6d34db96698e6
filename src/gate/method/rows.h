// The methods behind the table of dispatch.c.
#ifndef GATE_METHOD_ROWS_H
#define GATE_METHOD_ROWS_H

#include "base/json.h"
#include "gate/method/method.h"

// route.c: sets call->link and call->target.
phase_fn route_tool, route_prompt, route_resource, route_reference, route_task;
phase_fn route_lists;  // waits for the servers' lists, for a limited time

phase_fn initialize_session;

phase_fn task_list_merged;
void task_list_abandon(struct call *call, const char *reason);

// shaping.c: makes call->answer from a large reply, and resumes the call, maybe at once.
void shaping_start(struct call *call, const struct upstream_reply *reply);
void shaping_drop(struct call *call);

// Appends a listed tool, narrowed to the values of policy_narrowing().
void narrow_tool(struct span tool, const json_t *narrowing, struct buf *out);

// login_offer.c: puts the page where the user connects this server into the instructions of a session. Nothing if the server is
// connected or needs no connection.
void login_offer_put_hint(const struct link *link, struct buf *out);

#endif
