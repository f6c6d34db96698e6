// Unicode simple case folding: which names a reader that ignores case takes for one and the same.
#ifndef BASE_FOLD_H
#define BASE_FOLD_H

#include "base/span.h"

// Do two texts differ in case at most? Both are valid UTF-8.
bool fold_equal(struct span a, struct span b);

#endif
