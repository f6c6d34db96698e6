// The gate's side of the connect flow (connect/connect.h).
#ifndef GATE_CONNECT_HOOK_H
#define GATE_CONNECT_HOOK_H

struct connect;
struct gate;

struct connect *connect_hook_new(struct gate *gate);  // NULL: no server has connections of users

#endif
