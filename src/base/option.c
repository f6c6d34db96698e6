// Owns option tables: parsing a JSON object into a struct by its rows, and describing the rows.
#include "option.h"
#include "base/mem.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static void *field(const struct option *row, void *object) { return (char *)object + row->offset; }
static const void *field_of(const struct option *row, const void *object) { return (const char *)object + row->offset; }

// ---- words ----------------------------------------------------------------------------------

static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(b), line[64];
    if (n >= 64 || strlen(a) >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        line[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = line[0];
        line[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = line[j];
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (line[j - 1] + 1 < best)
                best = line[j - 1] + 1;
            diagonal = above;
            line[j] = best;
        }
    }
    return line[n];
}

const char *option_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    size_t least = strlen(word) / 2 + 1;
    for (; *names; names++) {
        size_t d = distance(word, *names);
        if (d < least) {
            least = d;
            best = *names;
        }
    }
    return best;
}

static bool scaled(const char *text, const char *const *units, const int64_t *factors, int64_t *out)
{
    char *rest;
    if (!isdigit((unsigned char)*text) || (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')))
        return false;
    double value = strtod(text, &rest);
    if (rest == text || !(value >= 0 && value <= 1e12))
        return false;
    while (*rest == ' ')
        rest++;
    for (size_t i = 0; units[i]; i++)
        if (strcasecmp(rest, units[i]) == 0) {
            *out = (int64_t)(value * (double)factors[i]);
            return true;
        }
    return false;
}

bool option_duration(const char *text, int64_t *ms)
{
    static const char *const units[] = {"ms", "s", "m", "h", "d", NULL};
    static const int64_t factors[] = {1, 1000, 60000, 3600000, 86400000};
    return scaled(text, units, factors, ms);
}

bool option_size(const char *text, int64_t *bytes)
{
    static const char *const units[] = {"", "B", "KiB", "MiB", "GiB", "KB", "MB", "GB", NULL};
    static const int64_t factors[] = {1, 1, 1 << 10, 1 << 20, 1 << 30, 1000, 1000000, 1000000000};
    return scaled(text, units, factors, bytes);
}

static bool has_line(struct buf *lines, const char *line)
{
    const char *text = buf_text(lines);
    size_t len = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at += len)
        if ((at == text || at[-1] == '\n') && at[len] == '\n')
            return true;
    return false;
}

// False: an unset variable is an error.
static bool note_unset(const char *name, struct option_unset *unset)
{
    if (!unset)
        return false;
    unset->uses++;
    if (!has_line(&unset->names, name))
        buf_printf(&unset->names, "%s\n", name);
    return true;
}

bool option_note_problem(const struct option_place *place, struct err *err)
{
    if (!place->problems || place->problems->count >= OPTION_PROBLEMS_MAX)
        return false;
    for (char *c = err->detail; err->code && *c; c++)  // a key may contain anything, and a problem is one line
        if ((unsigned char)*c < ' ')
            *c = ' ';
    if (err->code) {
        buf_printf(&place->problems->lines, "%s\n", err->detail);
        place->problems->count++;
    }
    *err = (struct err){0};
    return true;
}

char *option_expand(const char *text, const struct option_place *place, struct err *err)
{
    struct buf out = {0};
    const char *at = text;
    bool ok = true;
    if (place->literal)
        return mem_string(text);
    for (const char *open; (open = strstr(at, "${"));) {
        const char *close = strchr(open, '}');
        if (!close) {
            (void)err_set(err, ERR_CONFIG, "%s: %s: \"${\" without \"}\"", place->file, place->path);
            buf_release(&out);
            return NULL;
        }
        buf_put(&out, at, (size_t)(open - at));
        const char *first = strncmp(open, "${env:", 6) == 0 ? open + 6 : open + 2;  // as VS Code and Cursor write it
        char *name = mem_copy(first, (size_t)(close - first));
        char *fallback = strstr(name, ":-");
        if (fallback) {
            *fallback = '\0';
            fallback += 2;
        }
        const char *value = getenv(name);
        if (value && *value)
            buf_put_text(&out, value);
        else if (fallback)
            buf_put_text(&out, fallback);
        else if (note_unset(name, place->unset))
            buf_put(&out, open, (size_t)(close + 1 - open));
        else {
            (void)err_set(err, ERR_CONFIG,
                          "%s: %s: the environment variable %s is not set; set it, or write ${%s:-default}",
                          place->file, place->path, name, name);
            ok = false;
        }
        free(name);
        if (!ok && !option_note_problem(place, err))
            break;
        at = close + 1;
    }
    buf_put_text(&out, at);
    if (ok)
        return buf_take(&out, NULL);
    buf_release(&out);
    return NULL;
}

// ---- parsing --------------------------------------------------------------------------------

static const char *const type_words[] = {
    [OPTION_BOOL] = "true or false",
    [OPTION_INT] = "a whole number",
    [OPTION_SIZE] = "a size such as 4096, \"64KiB\" or \"4MiB\"",
    [OPTION_DURATION] = "a duration such as 30 (seconds), \"500ms\", \"15s\" or \"2m\"",
    [OPTION_STRING] = "a string",
    [OPTION_STRING_OR_FALSE] = "a string or false",
    [OPTION_ENUM] = "one of the listed words",
    [OPTION_STRINGS] = "an array of strings",
    [OPTION_PAIRS] = "an object of strings",
    [OPTION_JSON] = "any JSON value",
    [OPTION_OBJECT] = "an object",
    [OPTION_OBJECTS] = "an array of objects",
    [OPTION_NAMED_OBJECTS] = "an object of objects",
};

const char *option_type_text(enum option_type type) { return type_words[type]; }

static bool wrong_type(const struct option *row, const struct option_place *place, struct err *err)
{
    struct buf words = {0};
    for (int i = 0; row->type == OPTION_DURATION && row->choices && row->choices[i]; i++)
        buf_printf(&words, ", or \"%s\"", row->choices[i]);
    (void)err_set(err, ERR_CONFIG, "%s: %s: must be %s%s", place->file, place->path, type_words[row->type],
                  buf_text(&words));
    buf_release(&words);
    return false;
}

static bool in_bounds(const struct option *row, int64_t value, const struct option_place *place, struct err *err)
{
    if ((row->min == 0 && row->max == 0) || (value >= row->min && value <= row->max))
        return true;
    const char *unit = row->type == OPTION_DURATION ? " ms" : row->type == OPTION_SIZE ? " bytes" : "";
    return err_set(err, ERR_CONFIG, "%s: %s: must be between %" PRId64 " and %" PRId64 "%s", place->file, place->path,
                   row->min, row->max, unit);
}

// A word in the place of a duration is a negative number: -1 the first one, -2 the next.
static bool find_word(const struct option *row, const char *word, int64_t *out)
{
    for (int i = 0; word && row->choices[i]; i++)
        if (strcmp(word, row->choices[i]) == 0) {
            *out = -1 - i;
            return true;
        }
    return false;
}

static bool parse_number(const struct option *row, const json_t *tree, int64_t *out, const struct option_place *place,
                         struct err *err)
{
    double seconds = json_number_value(tree);
    if (row->choices && find_word(row, json_string_value(tree), out))
        return true;
    if (row->type == OPTION_DURATION && json_is_number(tree) && seconds >= 0 && seconds < 1e9)
        *out = (int64_t)(seconds * 1000);
    else if (row->type == OPTION_DURATION && json_is_string(tree)) {
        if (!option_duration(json_string_value(tree), out))
            return wrong_type(row, place, err);
    } else if (row->type == OPTION_SIZE && json_is_string(tree)) {
        if (!option_size(json_string_value(tree), out))
            return wrong_type(row, place, err);
    } else if (row->type != OPTION_DURATION && json_is_integer(tree))
        *out = json_integer_value(tree);
    else
        return wrong_type(row, place, err);
    return in_bounds(row, *out, place, err);
}

static bool parse_enum(const struct option *row, const json_t *tree, int *out, const struct option_place *place,
                       struct err *err)
{
    const char *word = json_string_value(tree);
    struct buf all = {0};
    for (int i = 0; row->choices[i]; i++) {
        if (word && strcmp(word, row->choices[i]) == 0) {
            buf_release(&all);
            *out = i;
            return true;
        }
        buf_printf(&all, "%s\"%s\"", i ? ", " : "", row->choices[i]);
    }
    (void)err_set(err, ERR_CONFIG, "%s: %s: must be one of %s", place->file, place->path, buf_text(&all));
    buf_release(&all);
    return false;
}

static bool parse_strings(const struct option *row, const json_t *tree, char ***out, const struct option_place *place,
                          struct err *err)
{
    if (!json_is_array(tree))
        return wrong_type(row, place, err);
    size_t i, count = 0;
    const json_t *item;
    bool ok = true;
    *out = mem_alloc((json_array_size(tree) + 1) * sizeof **out);
    json_array_foreach(tree, i, item) {
        if (!json_is_string(item))
            return wrong_type(row, place, err);
        if (((*out)[count] = option_expand(json_string_value(item), place, err)))
            count++;
        else if (option_note_problem(place, err))
            ok = false;
        else
            return false;
    }
    return ok;
}

static bool parse_pairs(const struct option *row, const json_t *tree, struct option_pairs *out,
                        const struct option_place *place, struct err *err)
{
    if (!json_is_object(tree))
        return wrong_type(row, place, err);
    const char *name;
    json_t *value;
    bool ok = true;
    out->at = mem_alloc((json_object_size(tree) + 1) * sizeof *out->at);
    json_object_foreach((json_t *)(uintptr_t)tree, name, value) {
        if (!json_is_string(value))
            return wrong_type(row, place, err);
        struct option_pair *pair = &out->at[out->count++];
        pair->name = mem_string(name);
        if (!(pair->value = option_expand(json_string_value(value), place, err))) {
            ok = false;
            if (!option_note_problem(place, err))
                return false;
        }
    }
    return ok;
}

static bool parse_items(const struct option *row, const json_t *tree, struct option_items *out,
                        const struct option_place *place, struct err *err)
{
    bool named = row->type == OPTION_NAMED_OBJECTS;
    if (named ? !json_is_object(tree) : !json_is_array(tree))
        return wrong_type(row, place, err);
    size_t count = named ? json_object_size(tree) : json_array_size(tree);
    out->at = mem_alloc((count + 1) * row->sub->size);
    void *iter = named ? json_object_iter((json_t *)(uintptr_t)tree) : NULL;
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        char *item = (char *)out->at + i * row->sub->size;
        struct buf path = {0};
        buf_printf(&path, "%s/", place->path);
        if (named) {
            *(char **)(void *)item = mem_string(json_object_iter_key(iter));
            buf_put_text(&path, json_object_iter_key(iter));
        } else {
            buf_put_int(&path, (int64_t)i);
        }
        const json_t *value = named ? json_object_iter_value(iter) : json_array_get(tree, i);
        struct option_place inner = *place;
        inner.path = buf_text(&path);
        out->count++;
        bool ok = option_parse(row->sub, value, item, &inner, err);
        buf_release(&path);
        all = all && ok;
        if (!ok && !option_note_problem(place, err))
            return false;
        if (named)
            iter = json_object_iter_next((json_t *)(uintptr_t)tree, iter);
    }
    return all;
}

static bool parse_value(const struct option *row, const json_t *tree, void *object, const struct option_place *place,
                        struct err *err)
{
    void *at = field(row, object);
    switch (row->type) {
    case OPTION_BOOL:
        if (!json_is_boolean(tree))
            return wrong_type(row, place, err);
        *(bool *)at = json_is_true(tree);
        return true;
    case OPTION_INT:
    case OPTION_SIZE:
    case OPTION_DURATION: return parse_number(row, tree, at, place, err);
    case OPTION_STRING_OR_FALSE:
        if (json_is_false(tree)) {
            *(char **)at = mem_string("");
            return true;
        }
        // fall through
    case OPTION_STRING:
        if (!json_is_string(tree))
            return wrong_type(row, place, err);
        return (*(char **)at = option_expand(json_string_value(tree), place, err)) != NULL;
    case OPTION_ENUM: return parse_enum(row, tree, at, place, err);
    case OPTION_STRINGS: return parse_strings(row, tree, at, place, err);
    case OPTION_PAIRS: return parse_pairs(row, tree, at, place, err);
    case OPTION_JSON: *(json_t **)at = json_incref((json_t *)(uintptr_t)tree); return true;
    case OPTION_OBJECT: return option_parse(row->sub, tree, at, place, err);
    case OPTION_OBJECTS:
    case OPTION_NAMED_OBJECTS: return parse_items(row, tree, at, place, err);
    }
    return false;
}

static bool unknown_key(const struct option_table *table, const char *key, const struct option_place *place,
                        struct err *err)
{
    const char *names[64] = {NULL};
    for (size_t i = 0; table->rows[i].name && i < 63; i++)
        names[i] = table->rows[i].name;
    const char *near = option_nearest(key, names);
    return err_set(err, ERR_CONFIG, "%s: %s/%s: unknown key%s%s%s", place->file, place->path, key,
                   near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool parse_row(const struct option *row, const json_t *tree, void *object, const struct option_place *place,
                      struct err *err)
{
    const json_t *given = json_object_get(tree, row->name);
    json_t *fallback = NULL;
    if (!given && row->fallback)
        given = fallback = json_loads(row->fallback, JSON_DECODE_ANY, NULL);
    else if (!given && row->type == OPTION_OBJECT)
        given = fallback = json_object();
    if (!given)
        return true;
    struct buf path = {0};
    buf_printf(&path, "%s/%s", place->path, row->name);
    struct option_place inner = *place;
    inner.path = buf_text(&path);
    bool ok = parse_value(row, given, object, &inner, err);
    buf_release(&path);
    json_decref(fallback);
    return ok;
}

static bool known_keys(const struct option_table *table, const json_t *tree, const struct option_place *place,
                       struct err *err)
{
    const char *key;
    json_t *value;
    bool ok = true;
    json_object_foreach((json_t *)(uintptr_t)tree, key, value) {
        const struct option *row = table->rows;
        while (row->name && strcmp(row->name, key) != 0)
            row++;
        if (row->name || strcmp(key, "$schema") == 0)
            continue;
        ok = unknown_key(table, key, place, err);
        if (!option_note_problem(place, err))
            break;
    }
    return ok;
}

bool option_parse(const struct option_table *table, const json_t *tree, void *into, const struct option_place *place,
                  struct err *err)
{
    if (!json_is_object(tree))
        return err_set(err, ERR_CONFIG, "%s: %s: must be an object", place->file, *place->path ? place->path : "/");
    bool ok = known_keys(table, tree, place, err);
    if (!ok && !option_note_problem(place, err))
        return false;
    bool unknown = false;  // at least one value of its own is not known
    for (const struct option *row = table->rows; row->name; row++) {
        size_t before = place->unset ? place->unset->uses : 0;
        bool parsed = parse_row(row, tree, into, place, err);
        ok = ok && parsed;
        if (!parsed && !option_note_problem(place, err))
            return false;
        unknown = unknown || (place->unset && !row->sub && place->unset->uses > before);
    }
    if (!ok || !table->check || place->literal || table->check(into, place, err))
        return ok;
    if (unknown)
        *err = (struct err){0};
    else
        option_note_problem(place, err);
    return unknown;
}

// ---- releasing and showing ------------------------------------------------------------------

static void free_text(const struct option *row, char *text)
{
    if (text && row->secret)
        explicit_bzero(text, strlen(text));
    free(text);
}

static void release_items(const struct option *row, struct option_items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        char *item = (char *)items->at + i * row->sub->size;
        if (row->type == OPTION_NAMED_OBJECTS)
            free(*(char **)(void *)item);
        option_release(row->sub, item);
    }
    free(items->at);
}

void option_release(const struct option_table *table, void *object)
{
    for (const struct option *row = table->rows; row->name; row++) {
        void *at = field(row, object);
        switch (row->type) {
        case OPTION_STRING:
        case OPTION_STRING_OR_FALSE: free_text(row, *(char **)at); break;
        case OPTION_STRINGS:
            for (char **s = *(char ***)at; s && *s; s++)
                free_text(row, *s);
            free(*(char ***)at);
            break;
        case OPTION_PAIRS: {
            struct option_pairs *pairs = at;
            for (size_t i = 0; i < pairs->count; i++) {
                free(pairs->at[i].name);
                free_text(row, pairs->at[i].value);
            }
            free(pairs->at);
            break;
        }
        case OPTION_JSON: json_decref(*(json_t **)at); break;
        case OPTION_OBJECT: option_release(row->sub, at); break;
        case OPTION_OBJECTS:
        case OPTION_NAMED_OBJECTS: release_items(row, at); break;
        default: break;
        }
    }
}

static json_t *show_value(const struct option *row, const void *at)
{
    switch (row->type) {
    case OPTION_BOOL: return json_boolean(*(const bool *)at);
    case OPTION_INT:
    case OPTION_SIZE: return json_integer(*(const int64_t *)at);
    case OPTION_DURATION: {
        int64_t ms = *(const int64_t *)at;
        if (ms < 0)
            return json_string(row->choices[-1 - ms]);
        return ms % 1000 ? json_sprintf("%" PRId64 "ms", ms) : json_sprintf("%" PRId64 "s", ms / 1000);
    }
    case OPTION_STRING:
    case OPTION_STRING_OR_FALSE: {
        const char *text = *(char *const *)at;
        if (text && !*text && row->type == OPTION_STRING_OR_FALSE)
            return json_false();
        return text ? json_string(row->secret ? "***" : text) : NULL;
    }
    case OPTION_ENUM: return json_string(row->choices[*(const int *)at]);
    case OPTION_STRINGS: {
        char *const *s = *(char **const *)at;
        json_t *array = s ? json_array() : NULL;
        for (; s && *s; s++)
            json_array_append_new(array, json_string(*s));
        return array;
    }
    case OPTION_PAIRS: {
        const struct option_pairs *pairs = at;
        json_t *object = pairs->count ? json_object() : NULL;
        for (size_t i = 0; i < pairs->count; i++)
            json_object_set_new(object, pairs->at[i].name, json_string(row->secret ? "***" : pairs->at[i].value));
        return object;
    }
    case OPTION_JSON: return json_incref(*(json_t *const *)at);
    case OPTION_OBJECT: return option_show(row->sub, at);
    case OPTION_OBJECTS:
    case OPTION_NAMED_OBJECTS: {
        const struct option_items *items = at;
        bool named = row->type == OPTION_NAMED_OBJECTS;
        if (!items->at)  // left out, which an empty list may not be
            return NULL;
        json_t *all = named ? json_object() : json_array();
        for (size_t i = 0; i < items->count; i++) {
            const char *item = (const char *)items->at + i * row->sub->size;
            json_t *shown = option_show(row->sub, item);
            if (named)
                json_object_set_new(all, *(char *const *)(const void *)item, shown);
            else
                json_array_append_new(all, shown);
        }
        return all;
    }
    }
    return NULL;
}

json_t *option_show(const struct option_table *table, const void *object)
{
    json_t *out = json_object();
    for (const struct option *row = table->rows; row->name; row++) {
        json_t *value = show_value(row, field_of(row, object));
        if (value)
            json_object_set_new(out, row->name, value);
    }
    return out;
}

// ---- describing -----------------------------------------------------------------------------

static json_t *type_schema(const struct option *row)
{
    switch (row->type) {
    case OPTION_BOOL: return json_pack("{s:s}", "type", "boolean");
    case OPTION_INT: return json_pack("{s:s}", "type", "integer");
    case OPTION_SIZE: return json_pack("{s:[s,s]}", "type", "integer", "string");
    case OPTION_DURATION: return json_pack("{s:[s,s]}", "type", "number", "string");
    case OPTION_STRING: return json_pack("{s:s}", "type", "string");
    case OPTION_STRING_OR_FALSE: return json_pack("{s:[{s:s},{s:b}]}", "anyOf", "type", "string", "const", 0);
    case OPTION_ENUM: {
        json_t *words = json_array();
        for (int i = 0; row->choices[i]; i++)
            json_array_append_new(words, json_string(row->choices[i]));
        return json_pack("{s:o}", "enum", words);
    }
    case OPTION_STRINGS: return json_pack("{s:s,s:{s:s}}", "type", "array", "items", "type", "string");
    case OPTION_PAIRS: return json_pack("{s:s,s:{s:s}}", "type", "object", "additionalProperties", "type", "string");
    case OPTION_JSON: return json_object();
    case OPTION_OBJECT: return option_schema(row->sub);
    case OPTION_OBJECTS: return json_pack("{s:s,s:o}", "type", "array", "items", option_schema(row->sub));
    case OPTION_NAMED_OBJECTS:
        return json_pack("{s:s,s:o}", "type", "object", "additionalProperties", option_schema(row->sub));
    }
    return json_object();
}

json_t *option_schema(const struct option_table *table)
{
    json_t *properties = json_object();
    for (const struct option *row = table->rows; row->name; row++) {
        json_t *one = type_schema(row);
        json_object_set_new(one, "description", json_string(row->help));
        if (row->fallback)
            json_object_set_new(one, "default", json_loads(row->fallback, JSON_DECODE_ANY, NULL));
        json_object_set_new(properties, row->name, one);
    }
    return json_pack("{s:s,s:s,s:o,s:b}", "title", table->title, "type", "object", "properties", properties,
                     "additionalProperties", 0);
}

static bool is_described(const struct option_table *table, struct buf *out)
{
    struct buf heading = {0};
    buf_printf(&heading, "\n## %s\n", table->title);
    bool found = strstr(buf_text(out), buf_text(&heading)) != NULL;
    buf_release(&heading);
    return found;
}

void option_markdown(const struct option_table *table, struct buf *out)
{
    buf_printf(out, "\n## %s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", table->title);
    for (const struct option *row = table->rows; row->name; row++) {
        buf_printf(out, "| `%s` | ", row->name);
        if (row->type == OPTION_ENUM)
            for (int i = 0; row->choices[i]; i++)
                buf_printf(out, "%s`\"%s\"`", i ? ", " : "", row->choices[i]);
        else
            buf_put_text(out, type_words[row->type]);
        if (row->type == OPTION_DURATION && row->choices)
            for (int i = 0; row->choices[i]; i++)
                buf_printf(out, ", or `\"%s\"`", row->choices[i]);
        if (row->sub)
            buf_printf(out, ": see *%s*", row->sub->title);
        buf_printf(out, " | %s%s%s | %s |\n", row->fallback ? "`" : "", row->fallback ? row->fallback : "",
                   row->fallback ? "`" : "", row->help);
    }
    for (const struct option *row = table->rows; row->name; row++)
        if (row->sub && !is_described(row->sub, out))
            option_markdown(row->sub, out);
}
