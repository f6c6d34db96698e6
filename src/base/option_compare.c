// Owns comparing two objects of an option table.
//
// Values are compared in memory, so two different secrets, both shown as "***", differ. Named objects are matched by
// name and arrays of objects by index.
#include "base/option_compare.h"
#include <stdlib.h>

static const void *field_of(const struct option *row, const void *object) { return (const char *)object + row->offset; }

static const char *item_at(const struct option *row, const struct option_items *items, size_t i)
{
    return (const char *)items->at + i * row->sub->size;
}

static const char *name_of(const char *item) { return *(char *const *)(const void *)item; }

static const char *find_named(const struct option *row, const struct option_items *items, const char *name)
{
    for (size_t i = 0; i < items->count; i++)
        if (strcmp(name_of(item_at(row, items, i)), name) == 0)
            return item_at(row, items, i);
    return NULL;
}

// ---- equal ----------------------------------------------------------------------------------

static bool texts_equal(const char *one, const char *other)
{
    return one && other ? strcmp(one, other) == 0 : one == other;
}

static bool lists_equal(char *const *one, char *const *other)
{
    if (!one || !other)
        return one == other;
    for (; *one && *other; one++, other++)
        if (strcmp(*one, *other) != 0)
            return false;
    return *one == *other;
}

static bool pairs_equal(const struct option_pairs *one, const struct option_pairs *other)
{
    if (one->count != other->count)
        return false;
    for (size_t i = 0; i < one->count; i++)
        if (strcmp(one->at[i].name, other->at[i].name) != 0 || strcmp(one->at[i].value, other->at[i].value) != 0)
            return false;
    return true;
}

static bool items_equal(const struct option *row, const struct option_items *one, const struct option_items *other)
{
    if (one->count != other->count || !one->at != !other->at)
        return false;
    for (size_t i = 0; i < one->count; i++) {
        const char *a = item_at(row, one, i), *b = item_at(row, other, i);
        if ((row->type == OPTION_NAMED_OBJECTS && strcmp(name_of(a), name_of(b)) != 0) ||
            !option_compare_equal(row->sub, a, b))
            return false;
    }
    return true;
}

static bool values_equal(const struct option *row, const void *one, const void *other)
{
    switch (row->type) {
    case OPTION_BOOL: return *(const bool *)one == *(const bool *)other;
    case OPTION_INT:
    case OPTION_SIZE:
    case OPTION_DURATION: return *(const int64_t *)one == *(const int64_t *)other;
    case OPTION_ENUM: return *(const int *)one == *(const int *)other;
    case OPTION_STRING:
    case OPTION_STRING_OR_FALSE: return texts_equal(*(char *const *)one, *(char *const *)other);
    case OPTION_STRINGS: return lists_equal(*(char **const *)one, *(char **const *)other);
    case OPTION_PAIRS: return pairs_equal(one, other);
    case OPTION_JSON: {
        const json_t *a = *(json_t *const *)one, *b = *(json_t *const *)other;
        return a && b ? json_equal(a, b) : a == b;
    }
    case OPTION_OBJECT: return option_compare_equal(row->sub, one, other);
    case OPTION_OBJECTS:
    case OPTION_NAMED_OBJECTS: return items_equal(row, one, other);
    }
    return false;
}

bool option_compare_equal(const struct option_table *table, const void *one, const void *other)
{
    for (const struct option *row = table->rows; row->name; row++)
        if (!values_equal(row, field_of(row, one), field_of(row, other)))
            return false;
    return true;
}

bool option_compare_items_equal(const struct option_table *table, const struct option_items *one,
                                const struct option_items *other)
{
    return items_equal(&(struct option){.type = OPTION_OBJECTS, .sub = table}, one, other);
}

// ---- as bytes -------------------------------------------------------------------------------

// A text with its length, so that different texts give different bytes; NULL differs from "".
static void put_text(const char *text, struct buf *out)
{
    buf_printf(out, "%zd:%s,", text ? (ssize_t)strlen(text) : -1, text ? text : "");
}

static void put_items(const struct option *row, const struct option_items *items, struct buf *out)
{
    buf_printf(out, "%d/%zu,", items->at != NULL, items->count);
    for (size_t i = 0; i < items->count; i++) {
        if (row->type == OPTION_NAMED_OBJECTS)
            put_text(name_of(item_at(row, items, i)), out);
        option_compare_put(row->sub, item_at(row, items, i), out);
    }
}

static void put_pairs(const struct option_pairs *pairs, struct buf *out)
{
    buf_printf(out, "%zu,", pairs->count);
    for (size_t i = 0; i < pairs->count; i++) {
        put_text(pairs->at[i].name, out);
        put_text(pairs->at[i].value, out);
    }
}

static void put_list(char *const *list, struct buf *out)
{
    for (; list && *list; list++)
        put_text(*list, out);
    buf_put_text(out, list ? "." : "-");
}

static void put_json(const json_t *value, struct buf *out)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;
    put_text(text, out);
    free(text);
}

static void put_value(const struct option *row, const void *value, struct buf *out)
{
    switch (row->type) {
    case OPTION_BOOL: buf_printf(out, "%d,", *(const bool *)value); break;
    case OPTION_INT:
    case OPTION_SIZE:
    case OPTION_DURATION: buf_printf(out, "%lld,", (long long)*(const int64_t *)value); break;
    case OPTION_ENUM: buf_printf(out, "%d,", *(const int *)value); break;
    case OPTION_STRING:
    case OPTION_STRING_OR_FALSE: put_text(*(char *const *)value, out); break;
    case OPTION_STRINGS: put_list(*(char **const *)value, out); break;
    case OPTION_PAIRS: put_pairs(value, out); break;
    case OPTION_JSON: put_json(*(json_t *const *)value, out); break;
    case OPTION_OBJECT: option_compare_put(row->sub, value, out); break;
    case OPTION_OBJECTS:
    case OPTION_NAMED_OBJECTS: put_items(row, value, out); break;
    }
}

void option_compare_put(const struct option_table *table, const void *object, struct buf *out)
{
    for (const struct option *row = table->rows; row->name; row++)
        put_value(row, field_of(row, object), out);
}

// ---- differences ----------------------------------------------------------------------------

struct option_comparison {
    option_compare_fn *report;
    void *arg;
    struct buf path;
};

static size_t descend(struct option_comparison *comparison, const char *name)
{
    size_t before = comparison->path.len;
    buf_put_char(&comparison->path, '/');
    for (; *name; name++)
        if (*name == '~' || *name == '/')
            buf_put_text(&comparison->path, *name == '~' ? "~0" : "~1");
        else
            buf_put_char(&comparison->path, *name);
    return before;
}

static void report(struct option_comparison *comparison, const struct option_difference *difference)
{
    struct option_difference whole = *difference;
    whole.path = buf_text(&comparison->path);
    comparison->report(comparison->arg, &whole);
    json_decref(whole.before);
    json_decref(whole.after);
}

static void report_item(struct option_comparison *comparison, enum option_difference_kind kind, json_t *item,
                        bool fixed)
{
    bool added = kind == OPTION_ADDED;
    report(comparison, &(struct option_difference){
                           .kind = kind, .before = added ? NULL : item, .after = added ? item : NULL, .fixed = fixed});
}

static bool is_text(enum option_type type)
{
    return type == OPTION_STRING || type == OPTION_STRING_OR_FALSE || type == OPTION_STRINGS || type == OPTION_PAIRS ||
           type == OPTION_JSON;
}

static void compare_objects(struct option_comparison *comparison, const struct option_table *table, const void *before,
                            const void *after, bool fixed);

static bool same_order(const struct option *row, const struct option_items *before, const struct option_items *after)
{
    size_t at = 0;
    for (size_t i = 0; i < before->count; i++) {
        const char *name = name_of(item_at(row, before, i));
        if (!find_named(row, after, name))
            continue;
        while (at < after->count && !find_named(row, before, name_of(item_at(row, after, at))))
            at++;
        if (at == after->count || strcmp(name_of(item_at(row, after, at++)), name) != 0)
            return false;
    }
    return true;
}

static void compare_named(struct option_comparison *comparison, const struct option *row,
                          const struct option_items *before, const struct option_items *after, bool fixed)
{
    for (size_t i = 0; i < before->count; i++) {
        const char *old = item_at(row, before, i), *new = find_named(row, after, name_of(old));
        size_t len = descend(comparison, name_of(old));
        if (new)
            compare_objects(comparison, row->sub, old, new, fixed);
        else
            report_item(comparison, OPTION_REMOVED, option_show(row->sub, old), fixed);
        comparison->path.len = len;
    }
    for (size_t i = 0; i < after->count; i++) {
        const char *new = item_at(row, after, i);
        size_t len = descend(comparison, name_of(new));
        if (!find_named(row, before, name_of(new)))
            report_item(comparison, OPTION_ADDED, option_show(row->sub, new), fixed);
        comparison->path.len = len;
    }
    if (!same_order(row, before, after))
        report_item(comparison, OPTION_REORDERED, NULL, fixed);
}

static void compare_listed(struct option_comparison *comparison, const struct option *row,
                           const struct option_items *before, const struct option_items *after, bool fixed)
{
    size_t both = before->count < after->count ? before->count : after->count;
    size_t most = before->count > after->count ? before->count : after->count;
    for (size_t i = 0; i < most; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        size_t len = descend(comparison, index);
        if (i < both)
            compare_objects(comparison, row->sub, item_at(row, before, i), item_at(row, after, i), fixed);
        else if (i < before->count)
            report_item(comparison, OPTION_REMOVED, option_show(row->sub, item_at(row, before, i)), fixed);
        else
            report_item(comparison, OPTION_ADDED, option_show(row->sub, item_at(row, after, i)), fixed);
        comparison->path.len = len;
    }
}

static json_t *show(const struct option *row, const void *object)
{
    struct option only[] = {*row, {0}};
    json_t *whole = option_show(&(struct option_table){.rows = only}, object);
    json_t *value = json_incref(json_object_get(whole, row->name));
    json_decref(whole);
    return value;
}

static void compare_objects(struct option_comparison *comparison, const struct option_table *table, const void *before,
                            const void *after, bool fixed)
{
    for (const struct option *row = table->rows; row->name; row++) {
        const void *old = field_of(row, before), *new = field_of(row, after);
        bool is_fixed = fixed || row->fixed;
        if (values_equal(row, old, new))
            continue;
        size_t len = descend(comparison, row->name);
        switch (row->type) {
        case OPTION_OBJECT: compare_objects(comparison, row->sub, old, new, is_fixed); break;
        case OPTION_OBJECTS: compare_listed(comparison, row, old, new, is_fixed); break;
        case OPTION_NAMED_OBJECTS: compare_named(comparison, row, old, new, is_fixed); break;
        default:
            report(comparison, &(struct option_difference){OPTION_CHANGED, NULL, show(row, before), show(row, after),
                                                           is_fixed, is_text(row->type)});
        }
        comparison->path.len = len;
    }
}

void option_compare(const struct option_table *table, const void *before, const void *after,
                    option_compare_fn *on_difference, void *arg)
{
    struct option_comparison comparison = {.report = on_difference, .arg = arg};
    compare_objects(&comparison, table, before, after, false);
    buf_release(&comparison.path);
}
