// Owns the differences between two configurations, as text for people and as input of a reload.
#include "config/diff.h"
#include "base/mem.h"
#include "base/option_compare.h"
#include "config/config.h"
#include "tables.h"
#include <stdlib.h>

struct config_diff {
    json_t *changes;  // as config_diff_json() returns them
    char *fixed;
    bool expanded;
};

static const char *const words[] = {
    [OPTION_CHANGED] = "changed",
    [OPTION_ADDED] = "added",
    [OPTION_REMOVED] = "removed",
    [OPTION_REORDERED] = "reordered",
};

static void add(void *arg, const struct option_difference *difference)
{
    struct config_diff *diff = arg;
    json_t *change = json_pack("{s:s,s:s}", "change", words[difference->kind], "path", difference->path);
    bool shown = !diff->expanded || !difference->text;
    if (difference->before && shown)
        json_object_set(change, "before", difference->before);
    if (difference->after && shown)
        json_object_set(change, "after", difference->after);
    if (difference->fixed) {
        json_object_set_new(change, "restart", json_true());
        diff->fixed = diff->fixed ? diff->fixed : mem_string(difference->path);
    }
    json_array_append_new(diff->changes, change);
}

struct config_diff *config_diff_new(const struct config *before, const struct config *after, bool expanded)
{
    struct config_diff *diff = mem_new(struct config_diff);
    diff->expanded = expanded;
    diff->changes = json_array();
    option_compare(&config_options, before, after, add, diff);
    return diff;
}

void config_diff_free(struct config_diff *diff)
{
    if (!diff)
        return;
    json_decref(diff->changes);
    free(diff->fixed);
    free(diff);
}

bool config_diff_is_empty(const struct config_diff *diff) { return json_array_size(diff->changes) == 0; }
const char *config_diff_fixed(const struct config_diff *diff) { return diff->fixed; }
json_t *config_diff_json(const struct config_diff *diff) { return json_incref(diff->changes); }

bool config_diff_touches(const struct config_diff *diff, const char *path)
{
    size_t len = strlen(path), i;
    const json_t *change;
    json_array_foreach(diff->changes, i, change) {
        const char *at = json_string_value(json_object_get(change, "path"));
        if (strncmp(at, path, len) == 0 && (at[len] == '/' || !at[len]))
            return true;
    }
    return false;
}

static void put_value(struct buf *out, const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    buf_put_text(out, text ? text : "absent");
    free(text);
}

static void put_line(struct buf *out, const json_t *change)
{
    const char *word = json_string_value(json_object_get(change, "change"));
    const char *path = json_string_value(json_object_get(change, "path"));
    const json_t *before = json_object_get(change, "before"), *after = json_object_get(change, "after");
    char sign = strcmp(word, "added") == 0 ? '+' : strcmp(word, "removed") == 0 ? '-' : '~';
    buf_printf(out, "%c %s", sign, path);
    if (strcmp(word, "reordered") == 0)
        buf_put_text(out, ": order changed");
    if (strcmp(word, "changed") == 0 && before && after && json_equal(before, after)) {
        buf_put_text(out, ": changed (secret)");
    } else if (strcmp(word, "changed") == 0 && !before && !after) {
        buf_put_text(out, ": changed");
    } else if (strcmp(word, "changed") == 0) {
        buf_put_text(out, ": ");
        put_value(out, before);
        buf_put_text(out, " -> ");
        put_value(out, after);
    }
    if (json_object_get(change, "restart"))
        buf_put_text(out, " (needs a restart)");
    buf_put_char(out, '\n');
}

void config_diff_put(const struct config_diff *diff, struct buf *out)
{
    size_t i;
    const json_t *change;
    json_array_foreach(diff->changes, i, change)
        put_line(out, change);
}
