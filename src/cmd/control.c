// Owns `postern status`, `logs` and `reload`: commands to a running gateway, over its control socket.
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

static void print_texts(const json_t *texts, const char *separator)
{
    size_t i;
    const json_t *text;
    json_array_foreach(texts, i, text)
        printf("%s%s", i ? separator : "", json_string_value(text));
}

static void print_configuration(const json_t *configuration)
{
    const char *failing = text_at(configuration, "failing_since"), *problem = text_at(configuration, "problem");
    printf("configuration  in force since %s\n", text_at(configuration, "since"));
    if (!failing)
        return;
    char *shown = mem_string(problem ? problem : "");
    output_tame(shown, strlen(shown), "");
    printf("               the file is not valid since %s: %s\n", failing, shown);
    free(shown);
}

static void print_status(const json_t *status)
{
    struct buf uptime = {0};
    output_put_duration(json_integer_value(json_object_get(status, "uptime_s")), &uptime);
    printf("status         %s%s", text_at(status, "status"),
           json_array_size(json_object_get(status, "problems")) ? ": " : "");
    print_texts(json_object_get(status, "problems"), ", ");
    printf("\ngateway        version %s, up %s\n", text_at(status, "version"), buf_text(&uptime));
    buf_release(&uptime);
    print_configuration(json_object_get(status, "configuration"));
    printf("listeners      ");
    print_texts(json_object_get(status, "listeners"), "\n               ");
    printf("\nsessions       %lld of %lld\n", number_at(status, "sessions", "open"),
           number_at(status, "sessions", "room"));
    printf("calls          %lld in flight\n", number_at(status, "calls", "in_flight"));
    printf("servers        %lld up, %lld starting, %lld idle, %lld down\n", number_at(status, "servers", "up"),
           number_at(status, "servers", "starting"), number_at(status, "servers", "idle"),
           number_at(status, "servers", "down"));
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
    .details =
        "Asks the gateway over its control socket. Exit status 0 if it is well, 1 if it is degraded or stopping,\n"
        "4 if no gateway answers.",
    .flags = flags_table,
    .run = run_status,
};

// ---- logs -----------------------------------------------------------------------------------

static void print_log(const json_t *instance, bool several)
{
    const json_t *text = json_object_get(instance, "stderr");
    char *shown = mem_string(json_string_value(text));
    output_tame(shown, json_string_length(text), "\n\t");
    if (several)
        printf("== %s, pid %lld\n", text_at(instance, "state"), json_integer_value(json_object_get(instance, "pid")));
    fputs(shown, stdout);
    free(shown);
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

static const struct flag server_flags[] = {FLAG_CONFIG, FLAG_TENANT, FLAG_CONTROL, FLAG_JSON, {0}};

const struct command control_command_logs = {
    .name = "logs",
    .synopsis = "logs SERVER [--tenant NAME] [--control PATH]",
    .summary = "Show the last lines that a server of a running gateway wrote to stderr",
    .details =
        "The gateway keeps up to 32 KiB of each process. With isolation `user` or `session` a server has several.",
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
    if (output_wants_json(flags))
        output_json(json_incref(result));
    else
        fputs(text_at(result, "changes"), stdout);
    json_decref(result);
    return EXIT_OK;
}

const struct command control_command_reload = {
    .name = "reload",
    .synopsis = "reload [--control PATH]",
    .summary = "Make a running gateway read its files again",
    .details =
        "The gateway reads its configuration, policies, credentials and certificates again. Waits until the\n"
        "configuration is in force and prints what has changed. If it cannot be taken over, the previous one stays\n"
        "in force, and the exit status is 3.",
    .flags = flags_table,
    .run = run_reload,
};
