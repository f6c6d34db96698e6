// Owns `postern config check|show|schema|docs|man`: everything that is generated from the option tables.
#include "base/mem.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "command_list.h"
#include "config_diff.h"
#include "help.h"
#include "preflight.h"
#include <stdio.h>
#include <stdlib.h>

static void print_json(json_t *tree)
{
    char *text = json_dumps(tree, JSON_INDENT(2));
    puts(text);
    free(text);
    json_decref(tree);
}

struct checked {
    const char *path;
    int code;
};

static void refuse_server(void *arg, const char *place, const struct err *err)
{
    struct checked *checked = arg;
    checked->code = fail_with(EXIT_CONFIG, "%s: %s: %s", checked->path, place, err->detail);
}

// Tenants without servers are not counted; this includes `default`.
static void print_servers(const struct config *config)
{
    const struct config_tenant *tenants = config->tenants.at;
    size_t servers = config->servers.count, with = servers > 0;
    for (size_t i = 0; i < config->tenants.count; i++) {
        servers += tenants[i].servers.count;
        with += tenants[i].servers.count > 0;
    }
    printf("%zu server%s", servers, servers == 1 ? "" : "s");
    if (config->tenants.count && with)
        printf(" in %zu tenant%s", with, with == 1 ? "" : "s");
}

static int check(const struct flags *flags)
{
    struct err err = {0};
    struct checked checked = {NULL, EXIT_OK};
    struct config *config = configuration_load(flags, &checked.code);
    if (!config)
        return checked.code;
    char *path = config_path(flags->config);
    checked.path = path;
    if (!preflight_check(config, flags->offline, &err))
        checked.code = fail_with(EXIT_CONFIG, "%s: %s", path, err.detail);
    if (!flags->offline)
        preflight_servers(config, refuse_server, &checked);
    for (const char *line = config->notes ? config->notes : "", *end; (end = strchr(line, '\n')); line = end + 1)
        fprintf(stderr, "postern: note: %.*s\n", (int)(end - line), line);
    if (checked.code == EXIT_OK) {
        printf("%s: ok, ", path);
        print_servers(config);
        putchar('\n');
    }
    free(path);
    config_unref(config);
    return checked.code;
}

static int show(const struct flags *flags)
{
    int code = EXIT_OK;
    struct config *config = configuration_load(flags, &code);
    if (!config)
        return code;
    config_unref(config);  // checked; now load it as it is written, without values of the environment
    struct err err = {0};
    char *path = config_path(flags->config);
    config = config_load_literal(path, &err);
    free(path);
    if (!config)
        return fail_with_err(&err);
    print_json(option_show(&config_options, config));
    config_unref(config);
    return EXIT_OK;
}

static int schema(void)
{
    json_t *tree = option_schema(&config_options);
    json_object_set_new(tree, "$schema", json_string("https://json-schema.org/draft/2020-12/schema"));
    json_object_set_new(json_object_get(tree, "properties"), "$schema", json_pack("{s:s}", "type", "string"));
    print_json(tree);
    return EXIT_OK;
}

static int docs(void)
{
    struct buf out = {0};
    buf_put_text(
        &out,
        "# Configuration\n\n"
        "This page lists every option of the configuration file, with its type, default and meaning. `postern config "
        "docs` generates it from the option tables, and `tests/lint/config-docs` fails when it is out of date.\n\n"
        "To start, save this as `postern.json` and check it:\n\n"
        "<!-- docs-test: file: postern.json -->\n"
        "```json\n"
        "{\n"
        "  \"listen\": [{\"address\": \"127.0.0.1:8080\"}],\n"
        "  \"log\": {\"format\": \"json\"},\n"
        "  \"mcpServers\": {\n"
        "    \"files\": {\"command\": \"npx\", \"args\": [\"-y\", \"@modelcontextprotocol/server-filesystem\", "
        "\".\"], \"timeout\": \"2m\"},\n"
        "    \"remote\": {\"url\": \"https://example.com/mcp\", \"headers\": {\"Authorization\": \"Bearer "
        "${REMOTE_TOKEN:-none}\"}}\n"
        "  }\n"
        "}\n"
        "```\n\n"
        "```sh\n"
        "postern config check    # reports every error with its line and column\n"
        "postern config show     # prints every option with its current value; secrets are hidden\n"
        "postern config schema   # prints a JSON Schema for editors\n"
        "```\n\n"
        "* The file is that of `--config`, or else the first of `$POSTERN_CONFIG`, `./postern.json` and "
        "`$XDG_CONFIG_HOME/postern/postern.json`.\n"
        "* It may have comments (`//` and `/* */`) and a comma after the last member. Unknown keys are errors.\n"
        "* `${NAME}` and `${NAME:-default}` in string values are replaced from the environment after parsing; a "
        "missing variable without a default is an error.\n"
        "* `postern config check` checks everything that `serve` reads at its start, except the databases. With "
        "`--offline`, it also works on another host, where variables, programs and keys are missing.\n"
        "* A running gateway applies a changed file without a restart, except a change of `control`, `public_url`, "
        "`audit`, `store`, `vault` or `catalogue.path`.\n\n"
        "A server may be written as for a client or for another gateway:\n\n"
        "* `enabled` is the opposite of `disabled`; `servers` at the top is `mcpServers`.\n"
        "* `uri`, `serverUrl` and `httpUrl` are `url`; `transport` and `transportType` are `type`, in any common "
        "spelling such as `streamableHttp`. A URL whose path ends with `/sse` is HTTP+SSE unless `type` says "
        "otherwise.\n"
        "* `authorizationToken` is `auth` with the mode `static`; `envFile` is `env_file`; `${env:NAME}` is `${NAME}`; "
        "numbers and `true` or `false` in `env` become text.\n"
        "* `description`, `name`, `notes` and `source` are for people. Settings of clients, such as `autoApprove` and "
        "`alwaysAllow`, have no effect; a note names them. Keys that would hide tools, such as `disabledTools`, are "
        "errors: "
        "use a profile or a policy.\n"
        "* In a server's name, characters other than letters, digits, `.`, `_` and `-` become `_`; a note tells the "
        "new "
        "name.\n"
        "* `timeout` is in seconds. A number above 3600 is refused, because it can only be milliseconds.\n");
    option_markdown(&config_options, &out);
    fputs(buf_text(&out), stdout);
    buf_release(&out);
    return EXIT_OK;
}

static int run(const struct flags *flags)
{
    const char *what = flags->args[0];
    if (strcmp(what, "check") == 0)
        return check(flags);
    if (flags->offline)
        return fail_with(EXIT_USAGE, "config %s: does not accept --offline", what);
    if (strcmp(what, "diff") == 0)
        return config_diff_run(flags);
    if (flags->args[1])
        return fail_with(EXIT_USAGE, "config %s: unexpected argument \"%s\"", what, flags->args[1]);
    if (strcmp(what, "show") == 0)
        return show(flags);
    if (strcmp(what, "schema") == 0)
        return schema();
    if (strcmp(what, "docs") == 0)
        return docs();
    if (strcmp(what, "man") == 0) {
        manual_config();
        return EXIT_OK;
    }
    return fail_with(EXIT_USAGE, "config %s: unknown subcommand; use check, show, diff, schema, docs or man", what);
}

static const struct flag flags_table[] = {FLAG_CONFIG, FLAG_OFFLINE, FLAG_JSON, {0}};

const struct command config_command = {
    .name = "config",
    .synopsis = "config check|show|diff OLD NEW|schema|docs|man [--config FILE] [--offline] [--json]",
    .summary = "Check or show the configuration, or print its schema",
    .details =
        "check   checks that serve would start with the file and that each server's program and key files exist;\n"
        "        prints up to 100 errors with line and column, and each server that cannot work. It does not open a\n"
        "        port, so it can run beside a gateway\n"
        "show    prints every option with its current value; secrets are hidden\n"
        "diff    prints the changes that a reload from OLD to NEW would make; exit status 1 if NEW needs a restart\n"
        "schema  prints a JSON Schema for editors\n"
        "docs    prints docs/config.md\n"
        "man     prints the manual page postern.json(5)",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 3,
    .run = run,
};
