// Owns `postern servers`: the configured servers, and whether they answer.
#include "base/log.h"
#include "base/mem.h"
#include "client.h"
#include "cmd.h"
#include "table.h"
#include <stdio.h>
#include <stdlib.h>

static const struct source *source_of(const struct client *client, const struct server *server,
                                      struct upstream **upstream)
{
    for (size_t i = 0; i < client_count(client); i++)
        if (upstream_server(client_upstream(client, i)) == server) {
            *upstream = client_upstream(client, i);
            return client_source(client, i);
        }
    return NULL;
}

static void put_offers(const struct source *source, struct buf *out)
{
    const struct {
        size_t count;
        const char *what;
    } rows[] = {{source_count(source, CATALOG_TOOLS), "tool"},
                {source_count(source, CATALOG_PROMPTS), "prompt"},
                {source_count(source, CATALOG_RESOURCES) + source_count(source, CATALOG_TEMPLATES), "resource"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        buf_printf(out, "%s%zu %s%s", i ? ", " : "", rows[i].count, rows[i].what, rows[i].count == 1 ? "" : "s");
}

static int run(const struct flags *flags)
{
    static const char *const titles[] = {"SERVER", "STATE", "OFFERS", "WHERE", NULL};
    int code = EXIT_OK;
    struct err err = {0};
    struct config *config = cmd_config(flags, &code);
    if (!config)
        return code;
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    struct client *client = client_new(config, NULL, false, &err);
    if (!client) {
        config_free(config);
        return cmd_fail_err(&err);
    }
    client_load(client);
    struct table table = {.titles = titles};
    json_t *out = json_array();
    const struct server *servers = config->servers.at;
    for (size_t i = 0; i < config->servers.count; i++) {
        struct upstream *upstream = NULL;
        const struct source *source = source_of(client, &servers[i], &upstream);
        bool ready = source && source_loaded(source);
        const char *state = !source ? "disabled" : ready ? "ready" : "failed";
        const char *where = servers[i].url ? servers[i].url : servers[i].command;
        struct buf offers = {0};
        if (ready)
            put_offers(source, &offers);
        if (source && !ready)
            code = EXIT_UNAVAILABLE;
        table_add(&table, (const char *const[]){servers[i].name, state, buf_text(&offers),
                                                source && !ready ? upstream_problem(upstream) : where});
        json_t *row = json_pack("{s:s,s:s,s:s}", "name", servers[i].name, "state", state, "where", where);
        if (ready)
            json_object_update_new(row, json_pack("{s:s,s:I,s:I,s:I,s:I}", "revision",
                                                  revision_text(upstream_revision(upstream)), "tools",
                                                  (json_int_t)source_count(source, CATALOG_TOOLS), "prompts",
                                                  (json_int_t)source_count(source, CATALOG_PROMPTS), "resources",
                                                  (json_int_t)source_count(source, CATALOG_RESOURCES), "templates",
                                                  (json_int_t)source_count(source, CATALOG_TEMPLATES)));
        else if (source)
            json_object_set_new(row, "problem", json_string(upstream_problem(upstream)));
        json_array_append_new(out, row);
        buf_release(&offers);
    }
    if (cmd_wants_json(flags)) {
        char *text = json_dumps(out, JSON_INDENT(2));
        puts(text);
        free(text);
    } else {
        table_print(&table);
    }
    json_decref(out);
    table_release(&table);
    int lost = client_free(client);
    config_free(config);
    return lost != EXIT_OK ? lost : code;
}

static const struct flag flags_table[] = {FLAG_CONFIG, FLAG_URL, FLAG_JSON, {0}};

const struct command command_servers = {
    .name = "servers",
    .synopsis = "servers [--config FILE]",
    .summary = "List the configured servers and whether they answer",
    .details = "Starts or connects to each one directly. Exit status 4 if one of them fails.",
    .flags = flags_table,
    .run = run,
};
