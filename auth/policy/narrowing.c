// Owns the values that a caller may pass to a tool, as far as they are known before a call: those of `eq` and `in`.
//
// A call passes only if an allow rule matches it. So if every allow rule for a tool restricts an argument to some values,
// only their union can pass; if one of the rules does not restrict it, any value may pass. Deny rules only remove values
// and are left out.
#include "condition.h"
#include "source.h"

enum { RULES_MAX = 64, VALUES_MAX = 256 };

// The union of the values that the conditions accept at the pointer; NULL if one of them accepts any value.
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

// One condition has every pointer that is restricted by all of them, so only its pointers are visited.
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
        if (json_array_size(values))  // empty: the argument must be absent, which an enum cannot express
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
