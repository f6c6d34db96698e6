// Owns `postern servers`: the configured servers, and whether they answer.
#include "base/mem.h"
#include "cmd/base/client.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "command_list.h"
#include <stdio.h>
#include <stdlib.h>

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

struct server_row {
    const char *tenant;
    const struct server *server;
    struct upstream *upstream;    // NULL: it is disabled
    const struct source *source;  // NULL likewise
    const char *last_lines;       // of its stderr
};

static struct server_row row_of(const struct client *client, const char *tenant, const struct server *server)
{
    for (size_t i = 0; i < client_count(client); i++)
        if (upstream_server(client_upstream(client, i)) == server)
            return (struct server_row){tenant, server, client_upstream(client, i), client_source(client, i),
                                       client_stderr(client, i)};
    return (struct server_row){.tenant = tenant, .server = server};
}

static bool is_ready(const struct server_row *row) { return row->source && source_loaded(row->source); }

static const char *state_of(const struct server_row *row)
{
    return !row->source ? "disabled" : is_ready(row) ? "ready" : "failed";
}

static const char *where_of(const struct server_row *row)
{
    return row->server->url ? row->server->url : row->server->command;
}

static void put_row(struct table *table, const struct server_row *row, bool tenants)
{
    struct buf offers = {0};
    bool failed = row->source && !is_ready(row);
    if (is_ready(row))
        put_offers(row->source, &offers);
    const char *const cells[] = {row->tenant, row->server->name, state_of(row), buf_text(&offers),
                                 failed ? upstream_problem(row->upstream) : where_of(row)};
    table_add(table, tenants ? cells : cells + 1);
    buf_release(&offers);
}

static json_t *row_json(const struct server_row *row)
{
    json_t *out = json_pack("{s:s,s:s,s:s,s:s}", "tenant", row->tenant, "name", row->server->name, "state",
                            state_of(row), "where", where_of(row));
    if (is_ready(row))
        json_object_update_new(out, json_pack("{s:s,s:I,s:I,s:I,s:I}", "revision",
                                              revision_text(upstream_revision(row->upstream)), "tools",
                                              (json_int_t)source_count(row->source, CATALOG_TOOLS), "prompts",
                                              (json_int_t)source_count(row->source, CATALOG_PROMPTS), "resources",
                                              (json_int_t)source_count(row->source, CATALOG_RESOURCES), "templates",
                                              (json_int_t)source_count(row->source, CATALOG_TEMPLATES)));
    else if (row->source)
        json_object_set_new(out, "problem", json_string(upstream_problem(row->upstream)));
    if (row->source && !is_ready(row) && *row->last_lines)
        json_object_set_new(out, "stderr", json_string(row->last_lines));
    return out;
}

static void print_json(const json_t *rows)
{
    char *text = json_dumps(rows, JSON_INDENT(2));
    puts(text);
    free(text);
}

static int show(const struct flags *flags, const struct config *config, const struct client *client)
{
    static const char *const titles[] = {"TENANT", "SERVER", "STATE", "OFFERS", "COMMAND OR URL", NULL};
    bool tenants = config->tenants.count > 0, json = output_wants_json(flags);
    struct table table = {.titles = tenants ? titles : titles + 1};
    json_t *rows = json_array();
    int code = EXIT_OK;
    for (size_t i = 0; i <= config->tenants.count; i++) {
        const char *tenant = config_tenant_name(config, i);
        const struct option_items *items = config_tenant_servers(config, i);
        const struct server *servers = items->at;
        for (size_t k = 0; k < items->count && (!flags->tenant || strcmp(flags->tenant, tenant) == 0); k++) {
            struct server_row row = row_of(client, tenant, &servers[k]);
            put_row(&table, &row, tenants);
            json_array_append_new(rows, row_json(&row));
            if (row.source && !is_ready(&row))
                code = EXIT_UNAVAILABLE;
        }
    }
    if (json)
        print_json(rows);
    else
        table_print(&table);
    (void)fflush(stdout);
    for (size_t i = 0; i < client_count(client) && !json; i++)
        if (!source_loaded(client_source(client, i)))
            output_stderr_of(upstream_server(client_upstream(client, i))->name, client_stderr(client, i));
    json_decref(rows);
    table_release(&table);
    return code;
}

static int run(const struct flags *flags)
{
    int code = EXIT_OK;
    struct err err = {0};
    struct config *config = configuration_for_client(flags, &code);
    if (!config)
        return code;
    struct client *client = client_new(config, &(struct client_wanted){.tenant = flags->tenant}, &err);
    if (!client) {
        config_unref(config);
        return fail_with_err(&err);
    }
    client_load(client);
    code = show(flags, config, client);
    int lost = client_free(client);
    config_unref(config);
    return lost != EXIT_OK ? lost : code;
}

static const struct flag flags_table[] = {FLAG_CONFIG, FLAG_TENANT, FLAG_URL, FLAG_TOKEN_FILE, FLAG_JSON, {0}};

const struct command servers_command = {
    .name = "servers",
    .synopsis = "servers [--tenant NAME]",
    .summary = "List the configured servers and check that each of them answers",
    .details = "Directly starts or connects to each server of every tenant. For a server that fails, prints the last "
               "lines of\n"
               "its standard error. Exit status 4: at least one server failed.",
    .flags = flags_table,
    .starts_servers = true,
    .run = run,
};
