// Owns `postern servers`: the configured servers, and whether they answer.
#include "base/mem.h"
#include "cmd/base/client.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/gateway.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "command_list.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        output_json(json_incref(rows));
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

// ---- those of a running gateway -------------------------------------------------------------

static const char *text_at(const json_t *row, const char *member)
{
    const char *text = json_string_value(json_object_get(row, member));
    return text ? text : "";
}

static void put_process(const json_t *row, struct buf *pid, struct buf *uptime)
{
    const json_t *first = json_array_get(json_object_get(row, "instances"), 0);
    long long others = json_integer_value(json_object_get(row, "instance_count")) - 1;
    json_int_t number = json_integer_value(json_object_get(first, "pid"));
    if (number)
        buf_printf(pid, "%lld", (long long)number);
    if (others > 0)
        buf_printf(pid, " +%lld", others);
    if (json_integer_value(json_object_get(first, "uptime_s")) || strcmp(text_at(first, "state"), "ready") == 0)
        output_put_duration(json_integer_value(json_object_get(first, "uptime_s")), uptime);
}

static void put_gateway_row(struct table *table, const json_t *row, bool tenants)
{
    struct buf pid = {0}, uptime = {0}, calls = {0}, p99 = {0};
    const json_t *slow = json_object_get(row, "p99_ms");
    put_process(row, &pid, &uptime);
    buf_printf(&calls, "%lld", (long long)json_integer_value(json_object_get(row, "calls")));
    if (json_is_number(slow))
        buf_printf(&p99, "%.1f ms", json_number_value(slow));
    const char *const cells[] = {text_at(row, "tenant"), text_at(row, "name"),      text_at(row, "state"),
                                 buf_text(&pid),         buf_text(&uptime),         buf_text(&calls),
                                 buf_text(&p99),         text_at(row, "last_error")};
    table_add(table, tenants ? cells : cells + 1);
    buf_release(&pid);
    buf_release(&uptime);
    buf_release(&calls);
    buf_release(&p99);
}

static bool has_tenants(const json_t *rows)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
        if (strcmp(text_at(row, "tenant"), "default") != 0)
            return true;
    return false;
}

// Drops the reference.
static int show_gateway(const struct flags *flags, json_t *rows)
{
    static const char *const titles[] = {"TENANT", "SERVER",  "STATE",      "PID", "UPTIME",
                                         "CALLS",  "LATENCY", "LAST ERROR", NULL};
    bool tenants = has_tenants(rows);
    struct table table = {.titles = tenants ? titles : titles + 1};
    int code = EXIT_OK;
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        put_gateway_row(&table, row, tenants);
        if (strcmp(text_at(row, "state"), "failed") == 0)
            code = EXIT_UNAVAILABLE;
    }
    if (output_wants_json(flags))
        output_json(json_incref(rows));
    else
        table_print(&table);
    table_release(&table);
    json_decref(rows);
    return code;
}

static json_t *ask_gateway(const struct flags *flags, int *code)
{
    json_t *request = json_pack("{s:s,s:s?}", "op", "servers", "tenant", flags->tenant);
    return flags->control ? gateway_ask(flags, request, code) : gateway_ask_own(flags, request, code);
}

// ---- the command ----------------------------------------------------------------------------

static int run_direct(const struct flags *flags, bool unasked)
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
    if (unasked)
        (void)fail_with(EXIT_OK, "no gateway with this configuration answers; starting or connecting to each server");
    client_load(client);
    code = show(flags, config, client);
    int lost = client_free(client);
    config_unref(config);
    return lost != EXIT_OK ? lost : code;
}

static int run(const struct flags *flags)
{
    int code = EXIT_OK;
    bool directly = flags->url || flags->caller_tokens || flags->direct;
    json_t *rows = directly ? NULL : ask_gateway(flags, &code);
    return rows ? show_gateway(flags, rows) : code != EXIT_OK ? code : run_direct(flags, !directly);
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,  FLAG_TENANT,
    FLAG_CONTROL, {"direct", NULL, FLAG(direct), "Do not ask a running gateway: start or connect to each server"},
    FLAG_URL,     FLAG_TOKEN_FILE,
    FLAG_JSON,    {0},
};

const struct command servers_command = {
    .name = "servers",
    .synopsis = "servers [--tenant NAME] [--control PATH | --direct]",
    .summary = "List the configured servers and check that each of them answers",
    .details =
        "If a gateway with the same configuration file runs, it reports on its own servers: state, process, calls,\n"
        "the 99th percentile of their durations (LATENCY), last error. Otherwise, or with --direct, the command starts "
        "or\n"
        "connects to each server of every tenant itself, and prints the last lines of the standard error of each that\n"
        "fails. Exit status 4: at least one server failed.",
    .flags = flags_table,
    .starts_servers = true,
    .run = run,
};
