// Owns `postern status` and `reload`: commands to a running gateway, over its control socket.
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "cmd/base/gateway.h"
#include "cmd/base/output.h"
#include "command_list.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAG_CONTROL                                                                                           \
    {                                                                                                          \
        "control", "PATH", FLAG(control), "The gateway's control socket, instead of that of the configuration" \
    }

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

static void print_duration(long long seconds)
{
    if (seconds >= 86400)
        printf("%lldd %lldh", seconds / 86400, seconds % 86400 / 3600);
    else if (seconds >= 3600)
        printf("%lldh %lldm", seconds / 3600, seconds % 3600 / 60);
    else
        printf("%lldm %llds", seconds / 60, seconds % 60);
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
    printf("status         %s%s", text_at(status, "status"),
           json_array_size(json_object_get(status, "problems")) ? ": " : "");
    print_texts(json_object_get(status, "problems"), ", ");
    printf("\ngateway        version %s, up ", text_at(status, "version"));
    print_duration(json_integer_value(json_object_get(status, "uptime_s")));
    putchar('\n');
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
