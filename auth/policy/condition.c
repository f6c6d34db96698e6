// Owns conditions on arguments: eq ne in not_in glob not_glob lt le gt ge max_len present each some.
//
//   when      = { POINTER: test, …, "any": [ when, … ] }   all must hold; any: one of them
//   test      = { OPERATOR: operand, … }                   all must hold
//
// A pointer to nothing makes a test false, except `present: false`, which it makes true. A value whose type the operator
// cannot judge is an error. An error in one part makes the whole an error, unless another part is false. A condition that
// needs more work than one decision may do is an error, too: callers choose the size of the arguments.
// A server may ignore the case of member names and read "Owner" as "owner". So a key that differs only in case from a
// key that the condition reads, along a pointer or inside an operand, is an error as well. A server may also end a text
// at U+0000, or drop or replace a lone surrogate, which json_parse_arguments() turns into U+0000: such a text is an error.
#include "condition.h"
#include "auth/policy/policy.h"
#include "base/fold.h"
#include "base/glob.h"
#include "base/mem.h"
#include "base/scan.h"
#include <stdlib.h>

#define EXACT_MAX ((json_int_t)1 << 53)
#define KEYS_MAX 4096  // callers choose the number of keys, and every condition reads all of them

#define ITEM_WORK 16    // the work for one key or element
#define TEXT_STRIDE 16  // bytes that are searched in the time of one comparison

// Subtracts `amount` from the work that is left; false if less is left.
static bool spend(struct condition_work *work, size_t amount)
{
    bool enough = work->left >= amount;
    work->left -= enough ? amount : work->left;
    return enough;
}

// ---- pointers -------------------------------------------------------------------------------

static const json_t *step(const json_t *tree, const char *token)
{
    if (json_is_object(tree))
        return json_object_get(tree, token);
    if (!json_is_array(tree) || !*token || strspn(token, "0123456789") != strlen(token) || strlen(token) > 9)
        return NULL;
    return json_array_get(tree, strtoul(token, NULL, 10));
}

// True if the object has a key that a server may read as this one, or too many keys to find out.
static bool has_twin(const json_t *object, const char *key, struct condition_work *work)
{
    const char *other;
    json_t *value;
    struct span wanted = span_of(key);
    if (json_object_size(object) > KEYS_MAX || !spend(work, json_object_size(object) * ITEM_WORK))
        return true;
    json_object_foreach((json_t *)(uintptr_t)object, other, value)
        if (fold_equal(span_of(other), wanted) && strcmp(other, key) != 0)
            return true;
    return false;
}

// The value a JSON Pointer points to, or NULL. Sets *twin if a key on the way has one.
static const json_t *follow(const json_t *tree, const char *pointer, bool *twin, struct condition_work *work)
{
    while (tree && *pointer == '/') {
        struct buf token = {0};
        for (pointer++; *pointer && *pointer != '/'; pointer++) {
            bool escape = *pointer == '~' && (pointer[1] == '0' || pointer[1] == '1');
            buf_put_char(&token, escape ? (*++pointer == '0' ? '~' : '/') : *pointer);
        }
        *twin = *twin || (json_is_object(tree) && has_twin(tree, buf_text(&token), work));
        tree = step(tree, buf_text(&token));
        buf_release(&token);
    }
    return tree;
}

// ---- operators ------------------------------------------------------------------------------

static enum condition_result truth(bool yes) { return yes ? CONDITION_TRUE : CONDITION_FALSE; }

static enum condition_result opposite(enum condition_result result)
{
    return result == CONDITION_ERROR ? CONDITION_ERROR : truth(result == CONDITION_FALSE);
}

static bool comparable(const json_t *a, const json_t *b)
{
    bool numbers = json_is_number(a) && json_is_number(b), bools = json_is_boolean(a) && json_is_boolean(b);
    return numbers || bools || json_typeof(a) == json_typeof(b);
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b) == 1;
}

// True if a key of the operand, at any depth, has a twin in the value.
static bool has_twin_inside(const json_t *value, const json_t *operand, struct condition_work *work)
{
    const char *key;
    json_t *inner;
    size_t i;
    if (json_is_object(value) && json_is_object(operand))
        json_object_foreach((json_t *)(uintptr_t)operand, key, inner)
            if (has_twin(value, key, work) || has_twin_inside(json_object_get(value, key), inner, work))
                return true;
    if (json_is_array(value) && json_is_array(operand))
        json_array_foreach(operand, i, inner)
            if (has_twin_inside(json_array_get(value, i), inner, work))
                return true;
    return false;
}

// True if a server may read a text of the value, at any depth, as another text, or if there is too much to find out.
static bool is_unclear(const json_t *value, struct condition_work *work)
{
    const char *key;
    json_t *inner;
    size_t i;
    if (json_is_string(value))
        return !spend(work, json_string_length(value) / TEXT_STRIDE) ||
               memchr(json_string_value(value), '\0', json_string_length(value));
    json_object_foreach((json_t *)(uintptr_t)value, key, inner)
        if (!spend(work, ITEM_WORK) || is_unclear(inner, work))
            return true;
    json_array_foreach(value, i, inner)
        if (!spend(work, ITEM_WORK) || is_unclear(inner, work))
            return true;
    return false;
}

static enum condition_result equals(const json_t *value, const json_t *operand, struct condition_work *work)
{
    if (!comparable(value, operand) || has_twin_inside(value, operand, work))
        return CONDITION_ERROR;
    return truth(same(value, operand));
}

static enum condition_result op_eq(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return is_unclear(value, work) ? CONDITION_ERROR : equals(value, operand, work);
}

static enum condition_result op_in(const json_t *value, const json_t *operand, struct condition_work *work)
{
    size_t i;
    const json_t *item;
    bool twin = false;
    enum condition_result result = CONDITION_ERROR;  // until the list has an item of its type
    if (is_unclear(value, work))
        return CONDITION_ERROR;
    json_array_foreach(operand, i, item) {
        enum condition_result one = equals(value, item, work);
        if (one == CONDITION_TRUE)
            return one;
        if (one == CONDITION_FALSE)
            result = CONDITION_FALSE;
        twin = twin || has_twin_inside(value, item, work);  // an error, unless an item is equal
    }
    return twin ? CONDITION_ERROR : result;
}

static enum condition_result op_ne(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return opposite(op_eq(value, operand, work));
}

static enum condition_result op_not_in(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return opposite(op_in(value, operand, work));
}

static enum condition_result op_glob(const json_t *value, const json_t *operand, struct condition_work *work)
{
    if (!json_is_string(value) || is_unclear(value, work))
        return CONDITION_ERROR;
    struct span text = span_make(json_string_value(value), json_string_length(value));
    if (json_is_string(operand))
        return spend(work, text.len) ? truth(glob_match(json_string_value(operand), text)) : CONDITION_ERROR;
    size_t i;
    const json_t *item;
    json_array_foreach(operand, i, item) {
        if (!spend(work, text.len))
            return CONDITION_ERROR;
        if (glob_match(json_string_value(item), text))
            return CONDITION_TRUE;
    }
    return CONDITION_FALSE;
}

static enum condition_result op_not_glob(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return opposite(op_glob(value, operand, work));
}

// -1, 0 or 1. Integers are compared exactly.
static int order(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b))
        return (json_integer_value(a) > json_integer_value(b)) - (json_integer_value(a) < json_integer_value(b));
    return (json_number_value(a) > json_number_value(b)) - (json_number_value(a) < json_number_value(b));
}

static enum condition_result op_lt(const json_t *value, const json_t *operand, struct condition_work *work)
{
    (void)work;
    return json_is_number(value) ? truth(order(value, operand) < 0) : CONDITION_ERROR;
}

static enum condition_result op_gt(const json_t *value, const json_t *operand, struct condition_work *work)
{
    (void)work;
    return json_is_number(value) ? truth(order(value, operand) > 0) : CONDITION_ERROR;
}

static enum condition_result op_le(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return opposite(op_gt(value, operand, work));
}
static enum condition_result op_ge(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return opposite(op_lt(value, operand, work));
}

static enum condition_result op_max_len(const json_t *value, const json_t *operand, struct condition_work *work)
{
    size_t max = (size_t)json_integer_value(operand);
    if (json_is_string(value))
        return is_unclear(value, work) ? CONDITION_ERROR : truth(json_string_length(value) <= max);
    return json_is_array(value) ? truth(json_array_size(value) <= max) : CONDITION_ERROR;
}

static enum condition_result op_present(const json_t *value, const json_t *operand, struct condition_work *work)
{
    (void)work;
    (void)value;
    return truth(json_is_true(operand));
}

static enum condition_result test_all(const json_t *test, const json_t *value, struct condition_work *work);

// `decisive` if an item gives it, else an error if an item gives one, else the opposite.
static enum condition_result test_items(const json_t *value, const json_t *operand, enum condition_result decisive,
                                        struct condition_work *work)
{
    size_t i;
    const json_t *item;
    enum condition_result result = opposite(decisive);
    if (!json_is_array(value))
        return CONDITION_ERROR;
    json_array_foreach(value, i, item) {
        enum condition_result one = spend(work, ITEM_WORK) ? test_all(operand, item, work) : CONDITION_ERROR;
        if (one == decisive)
            return one;
        if (one == CONDITION_ERROR)
            result = one;
    }
    return result;
}

static enum condition_result op_each(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return test_items(value, operand, CONDITION_FALSE, work);
}

static enum condition_result op_some(const json_t *value, const json_t *operand, struct condition_work *work)
{
    return test_items(value, operand, CONDITION_TRUE, work);
}

// ---- checks of operands ---------------------------------------------------------------------

static bool any_value(const json_t *operand) { return operand != NULL; }
static bool a_list(const json_t *operand) { return json_is_array(operand) && json_array_size(operand) > 0; }
static bool a_number(const json_t *operand) { return json_is_number(operand); }
static bool a_length(const json_t *operand) { return json_is_integer(operand) && json_integer_value(operand) >= 0; }
static bool a_bool(const json_t *operand) { return json_is_boolean(operand); }

static bool a_glob(const json_t *operand)
{
    size_t i;
    const json_t *item;
    if (json_is_string(operand))
        return glob_valid(json_string_value(operand));
    json_array_foreach(operand, i, item)
        if (!json_is_string(item) || !glob_valid(json_string_value(item)))
            return false;
    return a_list(operand);
}

static bool test_valid(const json_t *test, struct buf *where);
static bool a_test(const json_t *operand) { return test_valid(operand, NULL); }

static const struct operator
{
    const char *name;
    enum condition_result (*eval)(const json_t *value, const json_t *operand, struct condition_work *work);
    bool (*valid)(const json_t *operand);
    const char *wants, *failed;  // in words
}
operators[] = {
    {"eq", op_eq, any_value, "a value", "is not"},
    {"ne", op_ne, any_value, "a value", "is"},
    {"in", op_in, a_list, "a list that is not empty", "not in"},
    {"not_in", op_not_in, a_list, "a list that is not empty", "in"},
    {"glob", op_glob, a_glob, "a pattern or a list of patterns", "does not match"},
    {"not_glob", op_not_glob, a_glob, "a pattern or a list of patterns", "matches"},
    {"lt", op_lt, a_number, "a number", "not below"},
    {"le", op_le, a_number, "a number", "above"},
    {"gt", op_gt, a_number, "a number", "not above"},
    {"ge", op_ge, a_number, "a number", "below"},
    {"max_len", op_max_len, a_length, "a length", "longer than"},
    {"present", op_present, a_bool, "true or false", "presence is not"},
    {"each", op_each, a_test, "a test", "has an element that fails"},
    {"some", op_some, a_test, "a test", "has no element that passes"},
};

static const struct operator* find_operator(const char *name)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strcmp(operators[i].name, name) == 0)
            return &operators[i];
    return NULL;
}

static bool test_valid(const json_t *test, struct buf *where)
{
    const char *name;
    json_t *operand;
    if (!json_is_object(test) || json_object_size(test) == 0) {
        if (where)
            buf_put_text(where, ": must be an object of operators");
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)test, name, operand) {
        const struct operator* op = find_operator(name);
        if (op && op->valid(operand))
            continue;
        if (where && op)
            buf_printf(where, "/%s: must be %s", name, op->wants);
        else if (where)
            buf_printf(where, "/%s: unknown operator", name);
        return false;
    }
    return true;
}

static bool any_valid(const json_t *any, struct buf *where)
{
    size_t i;
    const json_t *item;
    if (!a_list(any)) {
        buf_put_text(where, "/any: must be a list of conditions");
        return false;
    }
    json_array_foreach(any, i, item)
        if (!condition_check(item, where))
            return false;
    return true;
}

bool condition_check(const json_t *when, struct buf *where)
{
    const char *pointer;
    json_t *test;
    if (!json_is_object(when) || json_object_size(when) == 0) {
        buf_put_text(where, ": must be an object that is not empty");
        return false;
    }
    json_object_foreach((json_t *)(uintptr_t)when, pointer, test) {
        if (strcmp(pointer, "any") == 0) {
            if (!any_valid(test, where))
                return false;
            continue;
        }
        if (*pointer != '/' && *pointer != '\0') {
            buf_printf(where, "/%s: is not a JSON Pointer; it must begin with '/'", pointer);
            return false;
        }
        size_t start = where->len;
        buf_printf(where, " at \"%s\"", pointer);
        if (!test_valid(test, where))
            return false;
        where->len = start;
    }
    return true;
}

// ---- evaluating -----------------------------------------------------------------------------

static enum condition_result test_all(const json_t *test, const json_t *value, struct condition_work *work)
{
    const char *name;
    json_t *operand;
    enum condition_result result = CONDITION_TRUE;
    json_object_foreach((json_t *)(uintptr_t)test, name, operand) {
        const struct operator* op = find_operator(name);
        enum condition_result one = op ? op->eval(value, operand, work) : CONDITION_ERROR;
        if (one == CONDITION_FALSE)
            return one;
        if (one == CONDITION_ERROR)
            result = one;
    }
    return result;
}

static void put_json(struct buf *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    struct span shown = span_of(text ? text : "?");
    buf_put(out, shown.at, scan_cut(shown, 80));
    free(text);
}

static void explain(struct buf *why, const char *pointer, const json_t *test, const json_t *value, bool redact)
{
    const char *name;
    json_t *operand;
    struct condition_work afresh = {CONDITION_WORK}, *work = &afresh;
    if (!why)
        return;
    json_object_foreach((json_t *)(uintptr_t)test, name, operand) {
        const struct operator* op = find_operator(name);
        enum condition_result one = op->eval(value, operand, work);
        if (one == CONDITION_TRUE)
            continue;
        buf_printf(why, "%s: ", pointer);
        if (redact)
            buf_put_text(why, "its value");
        else
            put_json(why, value);
        buf_printf(why, " %s ", one == CONDITION_ERROR ? "cannot be evaluated by" : op->failed);
        buf_printf(why, "%s%s", one == CONDITION_ERROR ? name : "", one == CONDITION_ERROR ? " " : "");
        put_json(why, operand);
        return;
    }
}

static enum condition_result eval_test(const char *pointer, const json_t *test, const json_t *args,
                                       struct condition_work *work, struct buf *why, bool redact)
{
    bool twin = false;
    const json_t *value = follow(args, pointer, &twin, work), *present = json_object_get(test, "present");
    if (twin) {
        if (why)
            buf_printf(why, "%s: cannot be evaluated: another key differs only in case, or there are too many keys",
                       pointer);
        return CONDITION_ERROR;
    }
    if (!value) {
        bool wanted_absent = json_is_false(present);
        if (!wanted_absent && why)
            buf_printf(why, "%s: is missing", pointer);
        return truth(wanted_absent);
    }
    enum condition_result result = test_all(test, value, work);
    if (result != CONDITION_TRUE)
        explain(why, pointer, test, value, redact);
    return result;
}

static enum condition_result eval_any(const json_t *any, const json_t *args, struct condition_work *work,
                                      struct buf *why, bool redact)
{
    size_t i;
    const json_t *item;
    enum condition_result result = CONDITION_FALSE;
    json_array_foreach(any, i, item) {
        enum condition_result one = condition_eval(item, args, work, NULL, redact);
        if (one == CONDITION_TRUE)
            return one;
        if (one == CONDITION_ERROR)
            result = one;
    }
    if (why)
        buf_put_text(why, "no condition in \"any\" is true");
    return result;
}

enum condition_result condition_eval(const json_t *when, const json_t *args, struct condition_work *work,
                                     struct buf *why, bool redact)
{
    const char *pointer;
    json_t *test;
    enum condition_result result = CONDITION_TRUE;
    json_object_foreach((json_t *)(uintptr_t)when, pointer, test) {
        struct buf *tell = why && why->len == 0 ? why : NULL;
        enum condition_result one = strcmp(pointer, "any") == 0 ? eval_any(test, args, work, tell, redact)
                                                                : eval_test(pointer, test, args, work, tell, redact);
        if (one == CONDITION_FALSE)
            return one;
        if (one == CONDITION_ERROR)
            result = one;
    }
    return result;
}

// ---- values known in advance ----------------------------------------------------------------

// Lists and objects, and integers that a double cannot hold, have a different equality in JSON Schema.
static bool is_plain(const json_t *value)
{
    if (json_is_integer(value))
        return json_integer_value(value) >= -EXACT_MAX && json_integer_value(value) <= EXACT_MAX;
    return !json_is_array(value) && !json_is_object(value);
}

bool policy_condition_has(const json_t *values, const json_t *value)
{
    size_t i;
    const json_t *item;
    json_array_foreach(values, i, item)
        if (comparable(value, item) && same(value, item))
            return true;
    return false;
}

// The values of `eq` and `in` that pass the other operators of the test. They are copied: references would write the
// reference counts of the policy, which other threads read.
static json_t *test_values(const json_t *test)
{
    const json_t *one = json_object_get(test, "eq"), *some = json_object_get(test, "in");
    if (!one && !some)
        return NULL;
    struct condition_work work = {CONDITION_WORK};
    json_t *values = json_array();
    size_t count = some ? json_array_size(some) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = some ? json_array_get(some, i) : one;
        if (!is_plain(item)) {
            json_decref(values);
            return NULL;
        }
        if (test_all(test, item, &work) == CONDITION_TRUE && !policy_condition_has(values, item))
            json_array_append_new(values, json_deep_copy(item));
    }
    return values;
}

static json_t *any_values(const json_t *any, const char *pointer)
{
    size_t i, k;
    json_t *item, *one, *all = json_array();
    json_array_foreach(any, i, item) {
        json_t *values = condition_values(item, pointer);
        if (!values) {  // this alternative accepts any value
            json_decref(all);
            return NULL;
        }
        json_array_foreach(values, k, one)
            if (!policy_condition_has(all, one))
                json_array_append(all, one);
        json_decref(values);
    }
    return all;
}

json_t *condition_values(const json_t *when, const char *pointer)
{
    const json_t *test = json_object_get(when, pointer), *any = json_object_get(when, "any");
    json_t *values = test ? test_values(test) : NULL;
    return values || !any ? values : any_values(any, pointer);
}
