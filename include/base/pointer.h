// JSON Pointers (RFC 6901), a step at a time: "/a~1b/0" is "a/b", then "0".
#ifndef BASE_POINTER_H
#define BASE_POINTER_H

#include "base/buf.h"
#include <stdbool.h>

// Takes "/step" off the front, and decodes it into `step`. False: the syntax is not valid, or the pointer is at its
// end.
bool pointer_step(const char **pointer, struct buf *step);
bool pointer_is_valid(const char *pointer);  // at least one step

#endif
