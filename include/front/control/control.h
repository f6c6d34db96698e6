// The control socket: JSON lines from operators of this host, one request and one reply for each connection.
//
//     {"op":"status"}  ->  {"ok":true,"gateway":{"pid":1,"version":"…","configuration":"…"},"result":{…}}
//                          {"ok":false,"gateway":{…},"reason":"config","error":"…"}
#ifndef FRONT_CONTROL_CONTROL_H
#define FRONT_CONTROL_CONTROL_H

#include "base/err.h"

struct control;
struct faces;
struct gate;
struct loop;
struct reload;

struct control_spec {
    struct loop *loop;
    struct gate *gate;
    struct reload *reload;
    struct faces *faces;
    const char *configuration;  // path of its file; NULL: it is not in a file
};

// Listens at this path.
struct control *control_new(const struct control_spec *spec, const char *path, struct err *err) MUST_CHECK;
void control_free(struct control *control);  // before the reload and the gate

#endif
