// The stdio face: one caller on our standard input and output.
#ifndef FRONT_STDIO_H
#define FRONT_STDIO_H

#include "base/err.h"
#include "gate/gate.h"
#include "loop/loop.h"

struct stdio_face;

struct stdio_spec {
    const char *profile;        // that the caller has; NULL: none
    void (*on_end)(void *arg);  // the input ended; calls in flight may still finish
    void *arg;
};

struct stdio_face *stdio_face_new(struct loop *loop, struct gate *gate, const struct stdio_spec *spec,
                                  struct err *err) MUST_CHECK;
void stdio_face_close(struct stdio_face *face);  // ends its session
void stdio_face_free(struct stdio_face *face);   // after the gate has shut down; writes what is left

#endif
