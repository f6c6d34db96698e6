// Owns `postern tools`, `resources` and `prompts`: the items that servers offer, as a table or as JSON.
#include "list.h"
#include "base/mem.h"
#include "base/scan.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "cmd/login/login.h"
#include "command_list.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool matches(const struct flags *flags, const struct source_item *item)
{
    if (!flags->search)
        return true;
    char *description = output_text_of(item->json, "description"), *name = mem_span(item->name);
    bool found = strcasestr(name, flags->search) || strcasestr(description, flags->search);
    free(description);
    free(name);
    return found;
}

static void put_json(struct buf *out, const char *tenant, const char *server, const struct source_item *item)
{
    buf_put_text(out, out->len > 1 ? ",\n {\"tenant\":" : "\n {\"tenant\":");
    scan_encode(span_of(tenant), out);
    buf_put_text(out, ",\"server\":");
    scan_encode(span_of(server), out);
    if (item->json.len > 2)
        buf_put_char(out, ',');
    buf_put_span(out, span_after(item->json, 1));
}

// `tenant` is NULL if there is only one tenant.
static void put_row(struct table *table, const char *tenant, const char *server, const struct source_item *item)
{
    char *name = mem_span(item->name), *description = output_text_of(item->json, "description");
    const char *const cells[] = {tenant, server, name, description, NULL};
    table_add(table, tenant ? cells : cells + 1);
    free(name);
    free(description);
}

// Logs in to the first server that requires it. True: a login succeeded, so list again.
static bool login_somewhere(const struct config *config, const struct flags *flags, const struct client *client)
{
    for (size_t i = 0; i < client_count(client); i++) {
        const struct access *access = client_wants_login(client, i);
        if (access) {
            struct login_cause cause;
            login_cause_set(&cause, access);
            struct flags there = *flags;
            there.tenant = client_tenant(client, i);
            bool in = login_run(config, upstream_server(client_upstream(client, i)), &there, &cause) == EXIT_OK;
            login_cause_release(&cause);
            return in;
        }
    }
    return false;
}

struct client *list_load(const struct config *config, const struct flags *flags, const char *server, struct err *err)
{
    for (int tries = 0;; tries++) {
        struct client_wanted wanted = {flags->tenant, server, false};
        struct client *client = client_new(config, &wanted, err);
        if (!client)
            return NULL;
        client_load(client);
        bool may_login = login_allowed(flags) && tries < LOGIN_TRIES;
        if (!may_login || !login_somewhere(config, flags, client))
            return client;
        client_free(client);
    }
}

struct listing {
    struct table table;
    struct buf json;
    bool tenants;  // more than one tenant
};

// The items of the i-th server.
static void put_items(struct listing *listing, const struct flags *flags, const struct client *client, size_t i,
                      const enum catalog_kind kinds[2])
{
    const struct source *source = client_source(client, i);
    const char *server = upstream_server(client_upstream(client, i))->name, *tenant = client_tenant(client, i);
    for (int kind = (int)kinds[0]; kind <= (int)kinds[1]; kind++)
        for (size_t k = 0; k < source_count(source, (enum catalog_kind)kind); k++) {
            const struct source_item *item = &source_items(source, (enum catalog_kind)kind)[k];
            if (!matches(flags, item))
                continue;
            put_row(&listing->table, listing->tenants ? tenant : NULL, server, item);
            put_json(&listing->json, tenant, server, item);
        }
}

// Most problems begin with the server's name.
int list_fail(const struct client *client, size_t i)
{
    const char *server = upstream_server(client_upstream(client, i))->name;
    const char *problem = upstream_problem(client_upstream(client, i));
    bool named = strncmp(problem, "server \"", strlen("server \"")) == 0;
    int code = named ? fail_with(EXIT_UNAVAILABLE, "%s", problem)
                     : fail_with(EXIT_UNAVAILABLE, "server \"%s\": %s", server, problem);
    output_stderr_of(server, client_stderr(client, i));
    return code;
}

static int list(const struct flags *flags, const enum catalog_kind kinds[2], const char *title)
{
    const char *const titles[] = {"TENANT", "SERVER", title, "DESCRIPTION", NULL};
    int code = EXIT_OK;
    struct err err = {0};
    struct config *config = configuration_for_client(flags, &code);
    if (!config)
        return code;
    struct client *client = list_load(config, flags, flags->count ? flags->args[0] : NULL, &err);
    if (!client) {
        config_unref(config);
        return fail_with_err(&err);
    }
    struct listing listing = {.tenants = config->tenants.count > 0};
    listing.table.titles = listing.tenants ? titles : titles + 1;
    buf_put_char(&listing.json, '[');
    for (size_t i = 0; i < client_count(client); i++) {
        if (!source_loaded(client_source(client, i)))
            code = list_fail(client, i);
        put_items(&listing, flags, client, i, kinds);
    }
    buf_put_text(&listing.json, listing.json.len > 1 ? "\n]" : "]");
    if (output_wants_json(flags))
        output_json_text(buf_span(&listing.json));
    else
        table_print(&listing.table);
    table_release(&listing.table);
    buf_release(&listing.json);
    int lost = client_free(client);
    config_unref(config);
    return lost != EXIT_OK ? lost : code;
}

static int run_tools(const struct flags *flags)
{
    return list(flags, (enum catalog_kind[]){CATALOG_TOOLS, CATALOG_TOOLS}, "TOOL");
}

static int run_prompts(const struct flags *flags)
{
    return list(flags, (enum catalog_kind[]){CATALOG_PROMPTS, CATALOG_PROMPTS}, "PROMPT");
}

static int run_resources(const struct flags *flags)
{
    return list(flags, (enum catalog_kind[]){CATALOG_RESOURCES, CATALOG_TEMPLATES}, "RESOURCE");
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    FLAG_TENANT,
    FLAG_URL,
    FLAG_TOKEN_FILE,
    {"search", "TEXT", FLAG(search), "Only items whose name or description contains this text, in upper or lower case"},
    FLAG_JSON,
    FLAG_INTERACTIVE,
    FLAG_HEADLESS,
    {0},
};

#define DETAILS                                                                                                       \
    "Connects directly to SERVER, or to the configured servers of every tenant, and prints the servers' own names.\n" \
    "On a terminal, prints a table; in a pipe, a JSON array with every member that the servers sent."

const struct command list_command_tools = {.name = "tools",
                                           .synopsis = "tools [SERVER] [--search TEXT]",
                                           .summary = "List the tools of the servers",
                                           .details = DETAILS,
                                           .flags = flags_table,
                                           .max_args = 1,
                                           .starts_servers = true,
                                           .run = run_tools};
const struct command list_command_prompts = {.name = "prompts",
                                             .synopsis = "prompts [SERVER] [--search TEXT]",
                                             .summary = "List the prompts of the servers",
                                             .details = DETAILS,
                                             .flags = flags_table,
                                             .max_args = 1,
                                             .starts_servers = true,
                                             .run = run_prompts};
const struct command list_command_resources = {.name = "resources",
                                               .synopsis = "resources [SERVER] [--search TEXT]",
                                               .summary = "List the resources and resource templates of the servers",
                                               .details = DETAILS,
                                               .flags = flags_table,
                                               .max_args = 1,
                                               .starts_servers = true,
                                               .run = run_resources};
