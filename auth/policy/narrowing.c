// Owns what a caller may pass to a tool as far as it can be told before the call: the values that `eq` and `in` name.
//
// A call passes only if one allow rule takes it. So if every allow rule about a tool names values for an argument, only
// their union can pass; if one of them names none, nothing can be said. Denies only take away and are left out.
#include "condition.h"
#include "source.h"

enum { RULES_MAX = 64, VALUES_MAX = 256 };

// The values that some condition takes at the pointer; NULL if one of them takes any.
static json_t *union_of(const json_t *const *conditions, size_t count, const char *pointer)
{
    size_t k;
    json_t *one, *all = json_array();
    for (size_t i = 0; all && i < count; i++) {
        json_t *values = condition_values(conditions[i], pointer);
        json_array_foreach(values, k, one)
            if (!policy_condition_has(all, one))
                json_array_append(all, one);
        if (!values || json_array_size(all) > VALUES_MAX) {
            json_decref(all);
            all = NULL;
        }
        json_decref(values);
    }
    return all;
}

// Looks at each pointer in one of the conditions: what all of them have, this one has.
static void narrow(json_t *out, const json_t *condition, const json_t *const *all, size_t count)
{
    const char *pointer;
    json_t *test;
    json_object_foreach((json_t *)(uintptr_t)condition, pointer, test) {
        if (strcmp(pointer, "any") == 0) {
            narrow(out, json_array_get(test, 0), all, count);
            continue;
        }
        json_t *values = json_object_get(out, pointer) ? NULL : union_of(all, count, pointer);
        if (json_array_size(values))  // none: the argument must be absent, which an enum cannot say
            json_object_set(out, pointer, values);
        json_decref(values);
    }
}

json_t *policy_narrowing(struct policy_memo *memo, const struct policy_question *question)
{
    const json_t *conditions[RULES_MAX];
    size_t count = policy_conditions(memo, question, conditions, RULES_MAX);
    if (!count)
        return NULL;
    json_t *out = json_object();
    narrow(out, conditions[0], conditions, count);
    if (json_object_size(out))
        return out;
    json_decref(out);
    return NULL;
}
