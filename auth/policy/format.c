// Owns the format of policy files: fixed key order, sorted selectors, short lists on one line, so that a diff shows
// only changes of meaning.
#include "base/mem.h"
#include "source.h"
#include <stdlib.h>

#define LINE_MAX_WIDTH 110

static const char *const sorted_keys[] = {"tenants", "subjects", "servers", "kinds", "names", "members", "roles", NULL};

static bool is_sorted_key(const char *key)
{
    for (const char *const *one = sorted_keys; key && *one; one++)
        if (strcmp(key, *one) == 0)
            return true;
    return false;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(json_string_value(*(json_t *const *)a), json_string_value(*(json_t *const *)b));
}

// Sorts an array of strings in place.
static void sort_strings(json_t *array)
{
    size_t count = json_array_size(array);
    json_t **items = mem_alloc((count + 1) * sizeof(json_t *));
    bool strings = true;
    for (size_t i = 0; i < count; i++) {
        items[i] = json_incref(json_array_get(array, i));
        strings = strings && json_is_string(items[i]);
    }
    if (strings && count > 1) {
        qsort(items, count, sizeof(json_t *), by_text);
        for (size_t i = 0; i < count; i++)
            json_array_set(array, i, items[i]);
    }
    for (size_t i = 0; i < count; i++)
        json_decref(items[i]);
    free(items);
}

static const struct option_table *sub_table(const struct option_table *table, const char *key)
{
    for (const struct option *row = table ? table->rows : NULL; row && row->name; row++)
        if (strcmp(row->name, key) == 0)
            return row->sub;
    return NULL;
}

static void put_value(struct buf *out, json_t *value, const struct option_table *table, bool named, size_t indent);

static void newline(struct buf *out, size_t indent)
{
    buf_put_char(out, '\n');
    for (size_t i = 0; i < indent; i++)
        buf_put_text(out, "  ");
}

static void put_compact(struct buf *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    buf_put_text(out, text ? text : "null");
    free(text);
}

static void put_member(struct buf *out, const char *key, json_t *value, const struct option_table *table, bool named,
                       size_t indent)
{
    if (out->at[out->len - 1] != '{')
        buf_put_char(out, ',');
    newline(out, indent);
    json_t *name = json_string(key);
    put_compact(out, name);
    json_decref(name);
    buf_put_text(out, ": ");
    if (table && !named && json_is_array(value) && is_sorted_key(key))
        sort_strings(value);
    // In `groups` and `sets` the member names are names of the file, and the members share one table.
    const struct option_table *inner = named ? table : sub_table(table, key);
    bool names_below = !named && (strcmp(key, "groups") == 0 || strcmp(key, "sets") == 0);
    put_value(out, value, inner, names_below, indent);
}

static void put_object(struct buf *out, json_t *object, const struct option_table *table, bool named, size_t indent)
{
    const char *key;
    json_t *value;
    buf_put_char(out, '{');
    for (const struct option *row = table && !named ? table->rows : NULL; row && row->name; row++)
        if ((value = json_object_get(object, row->name)))
            put_member(out, row->name, value, table, named, indent + 1);
    json_object_foreach(object, key, value) {
        bool known = false;
        for (const struct option *row = table && !named ? table->rows : NULL; row && row->name; row++)
            known = known || strcmp(row->name, key) == 0;
        if (!known)
            put_member(out, key, value, table, named, indent + 1);
    }
    newline(out, indent);
    buf_put_char(out, '}');
}

static void put_value(struct buf *out, json_t *value, const struct option_table *table, bool named, size_t indent)
{
    struct buf compact = {0};
    put_compact(&compact, value);
    bool fits = compact.len + indent * 2 < LINE_MAX_WIDTH && !table;
    if (fits || (!json_is_array(value) && !json_is_object(value))) {
        buf_put_span(out, buf_span(&compact));
    } else if (json_is_object(value)) {
        put_object(out, value, table, named, indent);
    } else {
        size_t i;
        json_t *item;
        buf_put_char(out, '[');
        json_array_foreach(value, i, item) {
            if (i)
                buf_put_char(out, ',');
            newline(out, indent + 1);
            put_value(out, item, table, false, indent + 1);
        }
        newline(out, indent);
        buf_put_char(out, ']');
    }
    buf_release(&compact);
}

char *policy_format_tree(json_t *tree)
{
    struct buf out = {0};
    put_value(&out, tree, &policy_source_options, false, 0);
    buf_put_char(&out, '\n');
    return buf_take(&out, NULL);
}

char *policy_format(const char *path, struct err *err)
{
    json_t *tree = json_parse_file(path, err);
    bool ok = tree && (json_is_object(tree) || err_set(err, ERR_CONFIG, "%s: must be an object", path));
    char *text = ok ? policy_format_tree(tree) : NULL;
    json_decref(tree);
    return text;
}
