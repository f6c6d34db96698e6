// The `when` of a rule: conditions on arguments by JSON Pointer, with three outcomes.
#ifndef AUTH_CONDITION_H
#define AUTH_CONDITION_H

#include "base/buf.h"
#include "base/json.h"

// An error is neither: an allow rule takes it for no, a deny rule for yes.
enum condition_result { CONDITION_ERROR, CONDITION_FALSE, CONDITION_TRUE };

// Is this a well-formed `when`? The problem, and the pointer to it below the `when`, go to `where`.
bool condition_check(const json_t *when, struct buf *where);
// `why`, if given, gets the first part that is not true, in words ("/owner: 'evil' not in [acme]");
// with `redact` without the argument's value.
enum condition_result condition_eval(const json_t *when, const json_t *args, struct buf *why, bool redact);
// The value a JSON Pointer points to, or NULL.
const json_t *condition_pointer(const json_t *tree, const char *pointer);

#endif
