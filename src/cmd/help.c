// Owns `postern help`: the list of commands, and the help of each command.
#include "help.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd/base/fail.h"
#include "command_list.h"
#include <stdlib.h>

#define WIDTH ((size_t)100)
#define HELP_COMMANDS 64  // an upper bound

const struct help_status help_statuses[] = {
    {EXIT_OK, "success"},
    {EXIT_NEGATIVE, "negative result (denied, not found, check failed)"},
    {EXIT_USAGE, "wrong usage"},
    {EXIT_CONFIG, "configuration error"},
    {EXIT_UNAVAILABLE, "server or gateway not available"},
    {EXIT_DENIED, "login: the user or the authorization server declined"},
    {EXIT_TIMEOUT, "login: timed out waiting for the browser, or the attempt of --finish is over"},
    {EXIT_PORT, "login: no callback port is available"},
    {EXIT_REGISTRATION, "login: client registration failed"},
    {EXIT_DISCOVERY, "login, doctor: discovery of the authorization server failed"},
    {EXIT_TOKEN, "login: the token request failed"},
    {EXIT_STORE, "the grant store failed"},
    {EXIT_ANSWER, "login: invalid authorization response"},
    {0, NULL},
};

void help_put_flag(const struct flag *flag, struct buf *out)
{
    buf_clear(out);
    buf_printf(out, "--%s", flag->name);
    if (flag->letter)
        buf_printf(out, ", -%c", flag->letter);
    if (flag->value)
        buf_printf(out, " %s", flag->value);
}

bool help_next_synopsis(const struct command *command, const char **at, struct span *one)
{
    const char *bar = *at;
    if (!*bar)
        return false;
    while ((bar = strstr(bar, "| ")) &&
           strncmp(bar + 1 + strspn(bar + 1, " "), command->name, strlen(command->name)) != 0)
        bar++;
    *one = bar ? span_make(*at, (size_t)(bar - *at)) : span_of(*at);
    while (one->len && one->at[one->len - 1] == ' ')
        one->len--;
    *at = bar ? bar + 1 + strspn(bar + 1, " ") : *at + strlen(*at);
    return true;
}

// Prints text whose lines all begin at this column.
static void put_wrapped(struct span text, size_t column)
{
    while (text.len > WIDTH - column) {
        size_t len = WIDTH - column;
        while (len && text.at[len] != ' ')
            len--;
        if (!len)
            break;
        printf("%.*s\n%*s", (int)len, text.at, (int)column, "");
        text = span_after(text, len + 1);
    }
    printf("%.*s\n", (int)text.len, text.at);
}

static void print_flag(const struct flag *flag, size_t width)
{
    struct buf left = {0};
    help_put_flag(flag, &left);
    printf("  %-*s  ", (int)width, buf_text(&left));
    put_wrapped(span_of(flag->help), width + 4);
    buf_release(&left);
}

static void put_usage(const struct command *command)
{
    const char *at = command->synopsis, *before = "usage: postern ";
    struct span one;
    while (help_next_synopsis(command, &at, &one)) {
        fputs(before, stdout);
        put_wrapped(one, strlen(before));
        before = "       postern ";
    }
}

void help_print(const struct command *command)
{
    struct buf left = {0};
    size_t width = sizeof "--help, -h";
    for (const struct flag *flag = command->flags; flag && flag->name; flag++) {
        help_put_flag(flag, &left);
        width = left.len > width ? left.len : width;
    }
    buf_release(&left);
    put_usage(command);
    printf("\n%s\n", command->summary);
    if (command->details)
        printf("\n%s\n", command->details);
    printf("\noptions:\n");
    for (const struct flag *flag = command->flags; flag && flag->name; flag++)
        print_flag(flag, width);
    print_flag(&options_help, width);
}

int help_unknown(const struct command *const *commands, const char *name)
{
    const char *names[HELP_COMMANDS] = {NULL};
    for (size_t i = 0; commands[i] && i + 1 < HELP_COMMANDS; i++)
        names[i] = commands[i]->name;
    if (*name == '-')
        return fail_with(EXIT_USAGE, "%s: the command comes first, then its options; see 'postern --help'", name);
    const char *near = option_nearest(name, names);
    return fail_with(EXIT_USAGE, "unknown command '%s'%s%s%s; see 'postern --help'", name,
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const struct command *help_find(const struct command *const *commands, const char *name)
{
    for (size_t i = 0; commands[i]; i++)
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    return NULL;
}

void help_commands(const struct command *const *commands, FILE *out)
{
    fprintf(out, "usage: postern COMMAND [OPTIONS]\n\nOne authenticated gateway to many MCP servers.\n\ncommands:\n");
    for (size_t i = 0; commands[i]; i++)
        fprintf(out, "  %-11s  %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n'postern COMMAND --help' describes a command.\nExit status:");
    for (const struct help_status *status = help_statuses; status->code < EXIT_DENIED; status++)
        fprintf(out, "%s %d %s", status->code ? "," : "", status->code, status->text);
    fprintf(out, ".\n");
}

char *help_words(const struct command *command)
{
    const char *at = command->synopsis + strlen(command->name);
    at += strspn(at, " [");
    size_t len = strcspn(at, " ]");
    if (!len || *at == '-' || (len == 1 && *at == '|'))
        return NULL;
    char *words = mem_copy(at, len);
    for (char *c = words; *c; c++)
        *c = *c == '|' ? ' ' : *c;
    return words;
}

static int run(const struct flags *flags)
{
    const struct command *command = flags->count ? help_find(flags->commands, flags->args[0]) : NULL;
    if (flags->man)
        manual_commands(flags->commands);
    else if (command)
        help_print(command);
    else if (flags->count)
        return help_unknown(flags->commands, flags->args[0]);
    else
        help_commands(flags->commands, stdout);
    return EXIT_OK;
}

static const struct flag flags_table[] = {
    {"man", NULL, FLAG(man), "Print the manual page postern(1)"},
    {0},
};

const struct command help_command = {
    .name = "help",
    .synopsis = "help [COMMAND] [--man]",
    .summary = "List the commands, or describe one of them",
    .flags = flags_table,
    .max_args = 1,
    .run = run,
};
