// The `when` of a rule: conditions on arguments by JSON Pointer, with three outcomes.
#ifndef AUTH_CONDITION_H
#define AUTH_CONDITION_H

#include "base/buf.h"
#include "base/json.h"

// An error is neither: an allow rule takes it for no, a deny rule for yes.
enum condition_result { CONDITION_ERROR, CONDITION_FALSE, CONDITION_TRUE };

// Bytes that the conditions of one decision may look at, all together: 16 ms at worst.
#define CONDITION_WORK ((size_t)4 << 20)

struct condition_work {
    size_t left;
};

// Is this a well-formed `when`? The problem, and the pointer to it below the `when`, go to `where`.
bool condition_check(const json_t *when, struct buf *where);
// `why`, if given, gets the first part that is not true, in words ("/owner: 'evil' not in [acme]");
// with `redact` without the argument's value.
// `work`: of CONDITION_WORK, for the decision.
enum condition_result condition_eval(const json_t *when, const json_t *args, struct condition_work *work,
                                     struct buf *why, bool redact);
// The values at a pointer with which the `when` can hold, as `eq` and `in` name them: a new array of texts, numbers and
// the like. NULL: it does not say. Never too few: whatever makes the `when` hold has one of them there.
json_t *condition_values(const json_t *when, const char *pointer);

#endif
