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
    // It took a while to tell who calls, and that one is not let in: nothing more will come.
    void (*on_refused)(void *arg, const struct err *err);
    void *arg;
};

// NULL with the error set if the caller is refused at once; else it is read from as soon as it is let in.
struct stdio_face *stdio_face_new(struct loop *loop, struct gate *gate, const struct stdio_spec *spec,
                                  struct err *err) MUST_CHECK;
void stdio_face_close(struct stdio_face *face);  // ends its session
void stdio_face_free(struct stdio_face *face);   // after the gate has shut down; writes what is left

#endif
