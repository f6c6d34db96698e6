// The control socket: JSON lines from operators of this host, one request and one reply for each connection.
//
//     {"op":"status"}  ->  {"ok":true,"gateway":{"pid":1,"version":"…","configuration":"…"},"result":{…}}
//                          {"ok":false,"gateway":{…},"reason":"config","error":"…"}
//
// Only a handover is two requests on one connection. The reply to the first carries the listening sockets, of the control socket
// first. The second makes this gateway accept no more. If the connection ends before it, nothing has changed.
//
//     {"op":"handover"}  ->  {"ok":true,…}, and descriptors (SCM_RIGHTS)
//     {"op":"retire"}    ->  {"ok":true,…}
#ifndef FRONT_CONTROL_CONTROL_H
#define FRONT_CONTROL_CONTROL_H

#include "base/err.h"

struct control;
struct faces;
struct gate;
struct inherited;
struct loop;
struct reload;

struct control_spec {
    struct loop *loop;
    struct gate *gate;
    struct reload *reload;
    struct faces *faces;
    const char *configuration;  // path of its file; NULL: it is not in a file
    struct inherited *inherited;
    const char *permanent;  // why no other process can replace this gateway; NULL: one can
    // A successor serves on the sockets of this gateway, which accepts no more over the control socket.
    void (*replaced)(void *arg);
    void *arg;
};

// Listens at this path, on an inherited socket if there is one.
struct control *control_new(const struct control_spec *spec, const char *path, struct err *err) MUST_CHECK;
// The file of the socket: whether it belongs to this process, which removes it at the end.
void control_own_file(struct control *control);    // also if the socket is inherited; the control may be NULL
void control_leave_file(struct control *control);  // another process will have the socket
bool control_hands_over(
    const struct control *control);                 // a successor has the listening sockets, but does not serve yet
int control_socket(const struct control *control);  // the listening socket; -1: none
void control_free(struct control *control);         // before the reload and the gate

#endif
