// What the files of methods share: dispatch.c has their table, route.c finds whom they concern.
#ifndef GATE_METHOD_H
#define GATE_METHOD_H

#include "call.h"

typedef enum phase_result method_fn(struct call *call);

// route.c: sets call->link and call->target.
method_fn route_tool, route_prompt, route_resource, route_reference, route_task;
method_fn route_lists;  // waits until the servers' lists are there, or long enough
enum phase_result call_fail(struct call *call, enum err_code code, const char *detail);
// What is missing is noted here and said after authorize, so that a denial tells nothing about it.
enum phase_result call_missing(struct call *call, enum err_code code);
// A string of the parameters (or of `in`, one of their members), decoded; false if it is absent or no string.
bool call_text_param(struct call *call, const char *in, const char *name, struct span *out);

// dispatch.c
enum catalog_kind dispatch_listed_kind(enum method method);  // what a list has

// initialize.c
method_fn initialize_session;

// task_list.c
method_fn tasks_list;
void tasks_list_abandon(struct call *call, const char *reason);

#endif
