// Owns `postern tools`, `resources` and `prompts`: what servers offer, as a table or as JSON.
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "client.h"
#include "cmd.h"
#include "login.h"
#include "table.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static char *text_of(struct span item, const char *key)
{
    struct span raw;
    struct buf text = {0};
    if (scan_find(item, key, &raw) && scan_is_string(raw))
        scan_decode(raw, &text);
    return buf_take(&text, NULL);
}

static bool matches(const struct flags *flags, const struct source_item *item)
{
    if (!flags->search)
        return true;
    char *description = text_of(item->json, "description"), *name = mem_span(item->name);
    bool found = strcasestr(name, flags->search) || strcasestr(description, flags->search);
    free(description);
    free(name);
    return found;
}

static void put_json(struct buf *out, const char *server, const struct source_item *item)
{
    buf_put_text(out, out->len > 1 ? ",\n {\"server\":" : "\n {\"server\":");
    scan_encode(span_of(server), out);
    if (item->json.len > 2)
        buf_put_char(out, ',');
    buf_put_span(out, span_after(item->json, 1));
}

static void put_row(struct table *table, const char *server, const struct source_item *item)
{
    char *name = mem_span(item->name), *description = text_of(item->json, "description");
    table_add(table, (const char *const[]){server, name, description, NULL});
    free(name);
    free(description);
}

// Logs in to the first server that wants it. True: something has changed.
static bool login_somewhere(const struct config *config, const struct flags *flags, const struct client *client)
{
    struct login_cause cause;
    for (size_t i = 0; i < client_count(client); i++)
        if (client_wants_login(client, i, &cause)) {
            bool in = login_run(config, upstream_server(client_upstream(client, i)), flags, &cause) == EXIT_OK;
            login_cause_release(&cause);
            return in;
        }
    return false;
}

static struct client *load(const struct config *config, const struct flags *flags, struct err *err)
{
    for (int tries = 0;; tries++) {
        struct client *client = client_new(config, flags->count ? flags->args[0] : NULL, false, err);
        if (!client)
            return NULL;
        client_load(client);
        bool may_login = login_allowed(flags) && tries < LOGIN_TRIES;
        if (!may_login || !login_somewhere(config, flags, client))
            return client;
        client_free(client);
    }
}

static int list(const struct flags *flags, enum catalog_kind first, enum catalog_kind last, const char *title)
{
    static const char *titles[] = {"SERVER", NULL, "DESCRIPTION", NULL};
    int code = EXIT_OK;
    struct err err = {0};
    struct buf out = {0};
    struct config *config = cmd_config(flags, &code);
    if (!config)
        return code;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    struct client *client = load(config, flags, &err);
    if (!client) {
        config_free(config);
        return cmd_fail_err(&err);
    }
    struct table table = {.titles = titles};
    titles[1] = title;
    buf_put_char(&out, '[');
    for (size_t i = 0; i < client_count(client); i++) {
        const struct source *source = client_source(client, i);
        const char *server = upstream_server(client_upstream(client, i))->name;
        if (!source_loaded(source))
            code =
                cmd_fail(EXIT_UNAVAILABLE, "server \"%s\": %s", server, upstream_problem(client_upstream(client, i)));
        for (int kind = (int)first; kind <= (int)last; kind++)
            for (size_t k = 0; k < source_count(source, (enum catalog_kind)kind); k++) {
                const struct source_item *item = &source_items(source, (enum catalog_kind)kind)[k];
                if (!matches(flags, item))
                    continue;
                put_row(&table, server, item);
                put_json(&out, server, item);
            }
    }
    buf_put_text(&out, out.len > 1 ? "\n]" : "]");
    if (cmd_wants_json(flags))
        puts(buf_text(&out));
    else
        table_print(&table);
    table_release(&table);
    buf_release(&out);
    int lost = client_free(client);
    config_free(config);
    return lost != EXIT_OK ? lost : code;
}

static int run_tools(const struct flags *flags) { return list(flags, CATALOG_TOOLS, CATALOG_TOOLS, "TOOL"); }
static int run_prompts(const struct flags *flags) { return list(flags, CATALOG_PROMPTS, CATALOG_PROMPTS, "PROMPT"); }
static int run_resources(const struct flags *flags)
{
    return list(flags, CATALOG_RESOURCES, CATALOG_TEMPLATES, "RESOURCE");
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    FLAG_URL,
    {"search", "TEXT", FLAG(search), "Only what has the text in its name or description"},
    FLAG_JSON,
    FLAG_INTERACTIVE,
    FLAG_HEADLESS,
    {0},
};

#define DETAILS                                                                                         \
    "Connects to the configured servers (or the one named) directly and prints their own names. On a\n" \
    "terminal a table, in a pipe a JSON array with every member the server sent."

const struct command command_tools = {.name = "tools",
                                      .synopsis = "tools [SERVER] [--search TEXT]",
                                      .summary = "List the tools of the servers",
                                      .details = DETAILS,
                                      .flags = flags_table,
                                      .max_args = 1,
                                      .run = run_tools};
const struct command command_prompts = {.name = "prompts",
                                        .synopsis = "prompts [SERVER] [--search TEXT]",
                                        .summary = "List the prompts of the servers",
                                        .details = DETAILS,
                                        .flags = flags_table,
                                        .max_args = 1,
                                        .run = run_prompts};
const struct command command_resources = {.name = "resources",
                                          .synopsis = "resources [SERVER] [--search TEXT]",
                                          .summary = "List the resources and resource templates of the servers",
                                          .details = DETAILS,
                                          .flags = flags_table,
                                          .max_args = 1,
                                          .run = run_resources};
