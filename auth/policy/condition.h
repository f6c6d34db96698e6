// The `when` of a rule: conditions on arguments by JSON Pointer, with three outcomes.
#ifndef AUTH_CONDITION_H
#define AUTH_CONDITION_H

#include "base/buf.h"
#include "base/json.h"

// An error is neither true nor false: an allow rule treats it as false, a deny rule as true.
enum condition_result { CONDITION_ERROR, CONDITION_FALSE, CONDITION_TRUE };

// Work that the conditions of one decision may do in total, in bytes looked at: 16 ms at worst.
#define CONDITION_WORK ((size_t)4 << 20)

struct condition_work {
    size_t left;
};

// True if this is a well-formed `when`. If not, the problem and the pointer to it below the `when` go to `where`.
bool condition_check(const json_t *when, struct buf *where);
// `why`, if not NULL, gets the first part that is not true ("/owner: 'evil' not in [acme]"); with `redact` without the
// argument's value. `work`: the work left for the decision, initially CONDITION_WORK.
enum condition_result condition_eval(const json_t *when, const json_t *args, struct condition_work *work,
                                     struct buf *why, bool redact);
// The values at a pointer with which the `when` can hold, from `eq` and `in`: a new array of texts, numbers and other
// scalars. NULL: the `when` does not restrict them. The array is never too small: all arguments for which the `when` holds
// have one of its values at the pointer.
json_t *condition_values(const json_t *when, const char *pointer);

#endif
