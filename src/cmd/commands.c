// Owns the table of commands, and running the command that the command line names.
#include "cmd/commands.h"
#include "cmd/base/fail.h"
#include "cmd/login/login.h"
#include "cmd/policy/policy.h"
#include "command_list.h"
#include "config/config.h"
#include "help.h"
#include "loop/spawner.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command *const commands[] = {
    &serve_command,
    &list_command_tools,
    &list_command_resources,
    &list_command_prompts,
    &info_command,
    &call_command,
    &call_command_read,
    &call_command_prompt,
    &servers_command,
    &control_command_status,
    &control_command_logs,
    &control_command_reload,
    &control_command_restart,
    &control_command_disable,
    &control_command_enable,
    &config_command,
    &token_command,
    &policy_command,
    &audit_command,
    &login_command,
    &logout_command,
    &logout_command_connections,
    &doctor_command,
    &vault_command,
    &version_command,
    &help_command,
    &completion_command,
    NULL,
};

static int run(const struct command *command, int argc, char **argv)
{
    struct flags flags = {.commands = commands};
    int code = options_parse(command, argc, argv, &flags);
    if (code != EXIT_OK)
        return code;
    if (flags.help) {
        help_print(command);
        return EXIT_OK;
    }
    if (flags.count < command->min_args - (flags.url && command->min_args > 0 ? 1 : 0))
        return fail_with(EXIT_USAGE, "usage: postern %s", command->synopsis);
    struct err err;
    if (command->starts_servers && !spawner_start(&err))
        return fail_with_err(&err);
    code = command->run(&flags);
    spawner_stop();
    return code;
}

// Output must have been written: a full disk is an error, but a reader that has closed the pipe is not.
static int flush(int code)
{
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    return failed && errno != EPIPE && code == EXIT_OK
               ? fail_with(EXIT_UNAVAILABLE, "standard output: %s", strerror(errno))
               : code;
}

// The value of --config on this command line; NULL: none.
static const char *given_config(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], "--config=", 9) == 0)
            return argv[i] + 9;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            return argv[i + 1];
    return NULL;
}

// `postern SERVER TOOL …` is short for `postern call SERVER TOOL …`, unless a command has the name of the server.
// `err` is why the configuration, whose servers would be known, cannot be read.
static bool is_server(const char *name, int argc, char **argv, struct err *err)
{
    char *path = config_path(given_config(argc, argv));
    struct config *config = path ? config_load_literal(path, err) : NULL;
    bool found = false;
    for (size_t i = 0; config && !found && i <= config->tenants.count; i++)
        found = server_find(config_tenant_servers(config, i), span_of(name)) != NULL;
    config_unref(config);
    free(path);
    return found;
}

int commands_main(int argc, char **argv)
{
    json_setup();
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        help_commands(commands, stderr);
        return EXIT_USAGE;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    const struct command *command = help_find(commands, name);
    if (command)
        return flush(run(command, argc - 2, argv + 2));
    struct err err = {0};
    if (is_server(name, argc - 2, argv + 2, &err))
        return flush(run(&call_command, argc - 1, argv + 1));
    int code = help_unknown(commands, name);
    return err.code ? fail_with(code, "no server is known either: %s", err.detail) : code;
}
