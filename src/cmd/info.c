// Owns `postern info`: one tool, with its arguments as a table.
#include "base/mem.h"
#include "base/scan.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "command_list.h"
#include "list.h"
#include <stdio.h>
#include <stdlib.h>

#define DEPTH_MAX 4  // of objects in objects, which are shown with dots in their names

struct showing {
    struct table table;
    struct buf name;  // of the argument
};

static void put_words(struct span array, const char *between, struct buf *out)
{
    struct span one;
    bool first = true;
    for (struct scan_walk walk = scan_walk(array); scan_element(&walk, &one); first = false) {
        buf_put_text(out, first ? "" : between);
        if (scan_is_string(one))
            scan_decode(one, out);
        else
            buf_put_span(out, one);
    }
}

// "string", "array of integer", "one of a, b": what a person needs to know of a JSON Schema.
static void put_type(struct span schema, unsigned depth, struct buf *out)
{
    struct span type, inner;
    if (scan_find(schema, "enum", &inner) && scan_is_array(inner)) {
        buf_put_text(out, "one of ");
        put_words(inner, ", ", out);
    } else if (!scan_find(schema, "type", &type) || !(scan_is_array(type) || scan_is_string(type))) {
        buf_put_text(out, "any");
    } else if (scan_is_array(type)) {
        put_words(type, " or ", out);
    } else {
        scan_decode(type, out);
        if (depth && span_is(type, "\"array\"") && scan_find(schema, "items", &inner) && scan_is_object(inner)) {
            buf_put_text(out, " of ");
            put_type(inner, depth - 1, out);
        }
    }
}

static bool is_required(struct span object, struct span raw_key)
{
    struct span required, one;
    if (!scan_find(object, "required", &required) || !scan_is_array(required))
        return false;
    for (struct scan_walk walk = scan_walk(required); scan_element(&walk, &one);)
        if (one.len == raw_key.len && memcmp(one.at, raw_key.at, one.len) == 0)
            return true;
    return false;
}

static void put_row(struct showing *showing, struct span schema, bool required)
{
    struct buf type = {0}, use = {0};
    struct span fallback;
    char *description = output_text_of(schema, "description");
    put_type(schema, DEPTH_MAX, &type);
    if (scan_find(schema, "default", &fallback))
        buf_printf(&use, "default %.*s", (int)(fallback.len > 40 ? 40 : fallback.len), fallback.at);
    else
        buf_put_text(&use, required ? "required" : "");
    table_add(&showing->table,
              (const char *const[]){buf_text(&showing->name), buf_text(&type), buf_text(&use), description, NULL});
    buf_release(&type);
    buf_release(&use);
    free(description);
}

static void put_arguments(struct showing *showing, struct span schema, unsigned depth)
{
    struct span properties, key, property;
    size_t before = showing->name.len;
    if (!scan_find(schema, "properties", &properties) || !scan_is_object(properties))
        return;
    for (struct scan_walk walk = scan_walk(properties); scan_member(&walk, &key, &property);) {
        if (!scan_is_object(property))
            property = span_of("{}");
        scan_decode(key, &showing->name);
        put_row(showing, property, is_required(schema, key));
        buf_put_char(&showing->name, '.');
        if (depth)
            put_arguments(showing, property, depth - 1);
        showing->name.len = before;
    }
}

static void show(struct span tool)
{
    static const char *const titles[] = {"ARGUMENT", "TYPE", "USE", "DESCRIPTION", NULL};
    struct showing showing = {.table.titles = titles};
    struct span schema;
    char *name = output_text_of(tool, "name"), *description = output_text_of(tool, "description");
    output_tame(name, strlen(name), "");
    output_tame(description, strlen(description), "\n\t");
    printf("%s%s%s\n\n", name, *description ? "\n\n" : "", description);
    if (scan_find(tool, "inputSchema", &schema) && scan_is_object(schema))
        put_arguments(&showing, schema, DEPTH_MAX);
    if (showing.table.count)
        table_print(&showing.table);
    else
        puts("no arguments");
    table_release(&showing.table);
    buf_release(&showing.name);
    free(name);
    free(description);
}

static int unknown_tool(const struct source *source, const char *server, const char *tool)
{
    size_t count = source_count(source, CATALOG_TOOLS);
    const char **names = mem_alloc((count + 1) * sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = mem_span(source_items(source, CATALOG_TOOLS)[i].name);
    const char *near = option_nearest(tool, names);
    int code = fail_with(EXIT_NEGATIVE, "server \"%s\" has no tool \"%s\"%s%s%s; `postern tools %s` lists them", server,
                         tool, near ? ", but \"" : "", near ? near : "", near ? "\"" : "", server);
    for (size_t i = 0; i < count; i++)
        free((char *)(uintptr_t)names[i]);
    free(names);
    return code;
}

static int print(const struct flags *flags, const struct client *client, const char *tool)
{
    const struct source *source = client_source(client, 0);
    if (!source_loaded(source))
        return list_fail(client, 0);
    for (size_t i = 0; i < source_count(source, CATALOG_TOOLS); i++) {
        const struct source_item *item = &source_items(source, CATALOG_TOOLS)[i];
        if (!span_is(item->name, tool))
            continue;
        if (output_wants_json(flags))
            output_json_text(item->json);
        else
            show(item->json);
        return EXIT_OK;
    }
    return unknown_tool(source, upstream_server(client_upstream(client, 0))->name, tool);
}

static int run(const struct flags *flags)
{
    int code = EXIT_OK;
    struct err err = {0};
    const char *server = flags->url ? NULL : flags->args[0], *tool = flags->args[flags->count - 1];
    if (flags->url && flags->count > 1)
        return fail_with(EXIT_USAGE, "SERVER cannot be given together with --url");
    struct config *config = configuration_for_client(flags, &code);
    if (!config)
        return code;
    struct client *client = list_load(config, flags, server, &err);
    if (!client) {
        config_unref(config);
        return fail_with_err(&err);
    }
    code = print(flags, client, tool);
    int lost = client_free(client);
    config_unref(config);
    return lost != EXIT_OK ? lost : code;
}

static const struct flag flags_table[] = {FLAG_CONFIG, FLAG_SERVER_TENANT, FLAG_URL,      FLAG_TOKEN_FILE,
                                          FLAG_JSON,   FLAG_INTERACTIVE,   FLAG_HEADLESS, {0}};

const struct command info_command = {
    .name = "info",
    .synopsis = "info SERVER TOOL  |  info --url URL TOOL",
    .summary = "Show a tool and its arguments",
    .details =
        "On a terminal, prints the description and a table of the arguments; in a pipe, the whole definition that the\n"
        "server sent.",
    .flags = flags_table,
    .min_args = 2,
    .max_args = 2,
    .starts_servers = true,
    .run = run};
