// Owns the position of a problem in a file of the configuration.
//
// Checks name the file and the path of the key, in this form; only here is the text known.
#include "text_file.h"
#include "aliases.h"
#include "base/json_file.h"
#include "base/mem.h"
#include <stdlib.h>

bool text_file_read(struct text_file *file, const struct option_table *table, void *into,
                    const struct option_place *place, struct err *err)
{
    struct option_place inside = *place;
    inside.file = file->path;
    inside.problems = &file->problems;
    json_t *tree = json_file_parse(file->path, &file->text, err);
    if (!tree)
        return false;
    bool adapted = aliases_apply(tree, &inside, &file->renamed, err);
    bool ok =
        (adapted || option_note_problem(&inside, err)) && option_parse(table, tree, into, &inside, err) && adapted;
    json_decref(tree);
    return ok;
}

// The path of the key in a problem "FILE: /KEY: what". NULL: the problem is elsewhere.
static char *key_of(const struct text_file *file, const char *problem)
{
    size_t name = strlen(file->path);
    if (strncmp(problem, file->path, name) != 0 || strncmp(problem + name, ": /", 3) != 0)
        return NULL;
    const char *key = problem + name + 2, *end = strstr(key, ": ");
    return end ? mem_copy(key, (size_t)(end - key)) : NULL;
}

struct located {
    struct json_position at;  // line 0: of no key in this file
    char *text;               // what follows the position
};

static int by_position(const void *a, const void *b)
{
    const struct located *x = a, *y = b;
    if (x->at.line != y->at.line)
        return x->at.line < y->at.line ? -1 : 1;
    if (x->at.column != y->at.column)
        return x->at.column < y->at.column ? -1 : 1;
    return strcmp(x->text, y->text);
}

// The longest path that leads to the key and is another one in the file, or NULL.
static const struct option_pair *find_renamed(const struct text_file *file, const char *key)
{
    const struct option_pair *best = NULL;
    for (size_t i = 0; i < file->renamed.count; i++) {
        const struct option_pair *one = &file->renamed.at[i];
        size_t len = strlen(one->name);
        bool leads = strncmp(key, one->name, len) == 0 && (key[len] == '/' || !key[len]);
        if (leads && (!best || len > strlen(best->name)))
            best = one;
    }
    return best;
}

static struct located locate(const struct text_file *file, const char *problem)
{
    char *key = key_of(file, problem);
    if (!key)
        return (struct located){.text = mem_string(problem)};
    struct buf path = {0}, text = {0};
    const struct option_pair *renamed = find_renamed(file, key);
    buf_printf(&path, "%s%s", renamed ? renamed->value : "", renamed ? key + strlen(renamed->name) : key);
    buf_printf(&text, ": %s%s", buf_text(&path), problem + strlen(file->path) + 2 + strlen(key));
    struct located located = {json_file_position(buf_span(&file->text), buf_text(&path)), buf_take(&text, NULL)};
    buf_release(&path);
    free(key);
    return located;
}

// In the order of the file; the same variable may be missing twice in one value.
static void put_all(const struct text_file *file, struct located *all, size_t count, struct option_problems *out)
{
    qsort(all, count, sizeof *all, by_position);
    for (size_t i = 0; i < count; i++) {
        if (i && strcmp(all[i].text, all[i - 1].text) == 0)
            continue;
        if (all[i].at.line)
            buf_printf(&out->lines, "%s:%zu:%zu", file->path, all[i].at.line, all[i].at.column);
        buf_printf(&out->lines, "%s\n", all[i].text);
        out->count++;
    }
}

void text_file_close(struct text_file *file, struct option_problems *all, struct err *err)
{
    if (!all->code && err->code != ERR_CONFIG)
        all->code = err->code;
    (void)option_note_problem(&(struct option_place){.problems = &file->problems}, err);
    *err = (struct err){0};
    struct located *located = mem_alloc((file->problems.count + 1) * sizeof *located);
    size_t count = 0;
    for (char *line = buf_text(&file->problems.lines), *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        located[count++] = locate(file, line);
    }
    put_all(file, located, count, all);
    for (size_t i = 0; i < count; i++)
        free(located[i].text);
    for (size_t i = 0; i < file->renamed.count; i++) {
        free(file->renamed.at[i].name);
        free(file->renamed.at[i].value);
    }
    free(file->renamed.at);
    free(located);
    buf_release(&file->problems.lines);
    buf_wipe(&file->text);
}
