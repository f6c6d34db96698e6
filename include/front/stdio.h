// The stdio face: one caller on the standard input and output of the gateway.
#ifndef FRONT_STDIO_H
#define FRONT_STDIO_H

#include "base/err.h"
#include "gate/gate.h"
#include "loop/loop.h"

struct stdio_face;

struct stdio_spec {
    const char *profile;        // of the caller; may be NULL
    void (*on_end)(void *arg);  // the input ended; calls in flight may still finish
    // Authentication took a while and then refused the caller. No further callback follows.
    void (*on_refused)(void *arg, const struct err *err);
    void *arg;
};

// NULL, with the error set: the caller is refused at once. Else its input is read as soon as it is authenticated.
struct stdio_face *stdio_face_new(struct loop *loop, struct gate *gate, const struct stdio_spec *spec,
                                  struct err *err) MUST_CHECK;
void stdio_face_close(struct stdio_face *face);  // ends its session
void stdio_face_free(struct stdio_face *face);   // after the gate has shut down; writes pending output

#endif
