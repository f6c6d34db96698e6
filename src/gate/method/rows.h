// The methods behind the table of dispatch.c.
#ifndef GATE_METHOD_ROWS_H
#define GATE_METHOD_ROWS_H

#include "base/json.h"
#include "gate/method/method.h"

// route.c: sets call->link and call->target.
phase_fn route_tool, route_prompt, route_resource, route_reference, route_task;
phase_fn route_lists;  // waits until the servers' lists are there, or long enough

phase_fn initialize_session;

phase_fn task_list_merged;
void task_list_abandon(struct call *call, const char *reason);

// shaping.c: `answer` of a large reply; resumes the call, maybe at once.
void shaping_start(struct call *call, const struct upstream_reply *reply);
void shaping_drop(struct call *call);

// A listed tool, with the values its caller may pass: policy_narrowing() gives those.
void narrow_tool(struct span tool, const json_t *narrowing, struct buf *out);

// login_offer.c: where a user connects this server, for the instructions of a session; nothing if it is connected, or not of
// that kind.
void login_offer_put_hint(const struct link *link, struct buf *out);

#endif
