// Owns `postern status`, `logs`, `reload`, `restart`, `disable` and `enable`: commands to a running gateway, over its control socket.
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "cmd/base/gateway.h"
#include "cmd/base/output.h"
#include "command_list.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_int_t number_at(const json_t *tree, const char *object, const char *member)
{
    return json_integer_value(json_object_get(json_object_get(tree, object), member));
}

static const char *text_at(const json_t *tree, const char *member)
{
    return json_string_value(json_object_get(tree, member));
}

// ---- status ---------------------------------------------------------------------------------

static void put_texts(const json_t *texts, const char *separator, struct buf *out)
{
    size_t i;
    const json_t *text;
    json_array_foreach(texts, i, text)
        buf_printf(out, "%s%s", i ? separator : "", json_string_value(text));
}

static void put_configuration(const json_t *configuration, struct buf *out)
{
    const char *failing = text_at(configuration, "failing_since"), *problem = text_at(configuration, "problem");
    buf_printf(out, "configuration  in force since %s\n", text_at(configuration, "since"));
    if (failing)
        buf_printf(out, "               the file has not been valid since %s: %s\n", failing, problem ? problem : "");
}

static void put_servers(const json_t *status, struct buf *out)
{
    json_int_t open = number_at(status, "servers", "circuit_open");
    buf_printf(out, "servers        %lld up, %lld starting, %lld idle, %lld down", number_at(status, "servers", "up"),
               number_at(status, "servers", "starting"), number_at(status, "servers", "idle"),
               number_at(status, "servers", "down"));
    if (open)
        buf_printf(out, " (%lld with an open circuit)", open);
    buf_put_char(out, '\n');
}

static void put_status(const json_t *status, struct buf *out)
{
    const json_t *problems = json_object_get(status, "problems");
    buf_printf(out, "status         %s%s", text_at(status, "status"), json_array_size(problems) ? ": " : "");
    put_texts(problems, ", ", out);
    buf_printf(out, "\ngateway        version %s, up ", text_at(status, "version"));
    output_put_duration(json_integer_value(json_object_get(status, "uptime_s")), out);
    buf_put_char(out, '\n');
    put_configuration(json_object_get(status, "configuration"), out);
    buf_put_text(out, "listeners      ");
    put_texts(json_object_get(status, "listeners"), "\n               ", out);
    buf_printf(out, "\nsessions       %lld of %lld\n", number_at(status, "sessions", "open"),
               number_at(status, "sessions", "room"));
    buf_printf(out, "calls          %lld in flight\n", number_at(status, "calls", "in_flight"));
    put_servers(status, out);
}

static void print_status(const json_t *status)
{
    struct buf text = {0};
    put_status(status, &text);
    output_tame(text.at, text.len, "\n");
    fputs(buf_text(&text), stdout);
    buf_release(&text);
}

static int run_status(const struct flags *flags)
{
    int code = EXIT_OK;
    json_t *status = gateway_ask(flags, json_pack("{s:s}", "op", "status"), &code);
    if (!status)
        return code;
    const char *word = text_at(status, "status");
    code = word && strcmp(word, "ok") == 0 ? EXIT_OK : EXIT_NEGATIVE;
    if (output_wants_json(flags)) {
        output_json(status);
    } else {
        print_status(status);
        json_decref(status);
    }
    return code;
}

static const struct flag flags_table[] = {FLAG_CONFIG, FLAG_CONTROL, FLAG_JSON, {0}};

const struct command control_command_status = {
    .name = "status",
    .synopsis = "status [--control PATH]",
    .summary = "Show the state of a running gateway",
    .details = "Asks the gateway over its control socket. Exit status 0 if its status is ok, 1 if it is degraded or\n"
               "stopping, 4 if no gateway answers.",
    .flags = flags_table,
    .run = run_status,
};

// ---- logs -----------------------------------------------------------------------------------

static void print_log(const json_t *instance, bool several)
{
    struct buf shown = {0};
    const char *state = text_at(instance, "state"), *text = text_at(instance, "stderr");
    if (several)
        buf_printf(&shown, "== %s, pid %lld\n", state ? state : "",
                   json_integer_value(json_object_get(instance, "pid")));
    buf_put_text(&shown, text ? text : "");
    output_tame(buf_text(&shown), shown.len, "\n\t");
    fputs(buf_text(&shown), stdout);
    buf_release(&shown);
}

static int run_logs(const struct flags *flags)
{
    int code = EXIT_OK;
    size_t i, written = 0;
    const json_t *instance;
    json_t *request = json_pack("{s:s,s:s,s:s?}", "op", "logs", "server", flags->args[0], "tenant", flags->tenant);
    json_t *instances = gateway_ask(flags, request, &code);
    if (!instances)
        return code;
    json_array_foreach(instances, i, instance)
        written += json_string_length(json_object_get(instance, "stderr"));
    if (output_wants_json(flags))
        output_json(json_incref(instances));
    else if (!written)
        fprintf(stderr, "postern: server \"%s\" has written nothing to stderr\n", flags->args[0]);
    else
        json_array_foreach(instances, i, instance)
            print_log(instance, json_array_size(instances) > 1);
    json_decref(instances);
    return EXIT_OK;
}

static const struct flag server_flags[] = {FLAG_CONFIG, FLAG_SERVER_TENANT, FLAG_CONTROL, FLAG_JSON, {0}};

const struct command control_command_logs = {
    .name = "logs",
    .synopsis = "logs SERVER [--tenant NAME] [--control PATH]",
    .summary = "Show the last lines that a server of a running gateway wrote to stderr",
    .details = "The gateway keeps up to 32 KiB of each process. With isolation `user` or `session`, a server may\n"
               "have several.",
    .flags = server_flags,
    .min_args = 1,
    .max_args = 1,
    .run = run_logs,
};

// ---- reload ---------------------------------------------------------------------------------

static int run_reload(const struct flags *flags)
{
    int code = EXIT_OK;
    json_t *result = gateway_ask(flags, json_pack("{s:s}", "op", "reload"), &code);
    if (!result)
        return code;
    if (output_wants_json(flags)) {
        output_json(json_incref(result));
    } else {
        const char *text = text_at(result, "changes");
        char *changes = mem_string(text ? text : "");
        output_tame(changes, strlen(changes), "\n");
        fputs(changes, stdout);
        free(changes);
    }
    json_decref(result);
    return EXIT_OK;
}

const struct command control_command_reload = {
    .name = "reload",
    .synopsis = "reload [--control PATH]",
    .summary = "Make a running gateway read its files again",
    .details =
        "The gateway reads its configuration, policies, credentials and certificates again. Waits until the\n"
        "configuration is in force and prints what has changed. If it is invalid, or changes an option that needs\n"
        "a restart, the previous one stays in force, and the exit status is 3.",
    .flags = flags_table,
    .run = run_reload,
};

// ---- one server -----------------------------------------------------------------------------

// `idle` is printed if no process or connection of the server existed.
static int run_change(const struct flags *flags, const char *op, const char *done, const char *idle)
{
    int code = EXIT_OK;
    json_t *request = json_pack("{s:s,s:s,s:s?}", "op", op, "server", flags->args[0], "tenant", flags->tenant);
    json_t *result = gateway_ask(flags, request, &code);
    if (!result)
        return code;
    bool ran = json_integer_value(json_object_get(result, "instances")) > 0;
    if (output_wants_json(flags))
        output_json(json_incref(result));
    else
        printf("server \"%s\" %s\n", flags->args[0], ran ? done : idle);
    json_decref(result);
    return EXIT_OK;
}

static int run_restart(const struct flags *flags)
{
    return run_change(flags, "restart", "restarted", "was not running; the next call starts it");
}

static int run_disable(const struct flags *flags) { return run_change(flags, "disable", "disabled", "disabled"); }
static int run_enable(const struct flags *flags) { return run_change(flags, "enable", "enabled", "enabled"); }

const struct command control_command_restart = {
    .name = "restart",
    .synopsis = "restart SERVER [--tenant NAME] [--control PATH]",
    .summary = "Restart a server of a running gateway",
    .details = "A new process or connection starts at once, and new calls go to it. The old one finishes its calls,\n"
               "for at most timeouts.shutdown. Sessions stay open, and other servers are not disturbed. A server that\n"
               "was idle is started by the next call; a disabled one is not restarted.",
    .flags = server_flags,
    .min_args = 1,
    .max_args = 1,
    .run = run_restart,
};

const struct command control_command_disable = {
    .name = "disable",
    .synopsis = "disable SERVER [--tenant NAME] [--control PATH]",
    .summary = "Stop a server of a running gateway and hide its tools, prompts and resources",
    .details =
        "The same as \"disabled\": true in the configuration, until 'postern enable' or until the gateway ends: the\n"
        "server finishes its calls, its tools, prompts and resources are no longer listed, and calls to them fail as\n"
        "unknown. A reload does not enable it.",
    .flags = server_flags,
    .min_args = 1,
    .max_args = 1,
    .run = run_disable,
};

const struct command control_command_enable = {
    .name = "enable",
    .synopsis = "enable SERVER [--tenant NAME] [--control PATH]",
    .summary = "Undo 'postern disable'",
    .details = "A server that the configuration disables has to be enabled there.",
    .flags = server_flags,
    .min_args = 1,
    .max_args = 1,
    .run = run_enable,
};
