// The commands of this room, for the table in commands.c.
#ifndef CMD_COMMAND_LIST_H
#define CMD_COMMAND_LIST_H

#include "cmd/base/options.h"

extern const struct command audit_command, call_command, call_command_prompt, call_command_read, completion_command,
    config_command, control_command_disable, control_command_enable, control_command_logs, control_command_reload,
    control_command_restart, control_command_status, doctor_command, help_command, info_command, list_command_prompts,
    list_command_resources, list_command_tools, serve_command, servers_command, token_command, vault_command,
    version_command;

#endif
