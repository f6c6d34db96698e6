// Descriptions of the commands and the configuration: help and manual pages, from the same tables.
#ifndef CMD_HELP_H
#define CMD_HELP_H

#include "base/buf.h"
#include "cmd/base/options.h"
#include <stdio.h>

void help_commands(const struct command *const *commands, FILE *out);  // the list of all commands, which ends with NULL
const struct command *help_find(const struct command *const *commands, const char *name);  // NULL: not a command
// Reports that it is not a command, and suggests a similar one. Returns the exit code.
int help_unknown(const struct command *const *commands, const char *name);
void help_print(const struct command *command);

void help_put_flag(const struct flag *flag, struct buf *out);  // "--follow, -f" or "--config FILE"

// The choices for the first argument in the synopsis: "check|show" gives "check show", SERVER gives "SERVER". NULL: no
// argument. The caller frees the result.
char *help_words(const struct command *command);

// The next form of a command with several, such as "login SERVER | login --url URL". *at begins as its synopsis. False:
// no more.
bool help_next_synopsis(const struct command *command, const char **at, struct span *one);

void manual_commands(const struct command *const *commands);  // postern(1)
void manual_config(void);                                     // postern.json(5)

// The meaning of an exit status; the list ends with a text of NULL.
struct help_status {
    int code;
    const char *text;
};
extern const struct help_status help_statuses[];

#endif
