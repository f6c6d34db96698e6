// Owns `postern completion`: scripts for shells, written from the table of commands.
//
// A script contains the commands, their options and subcommands. It gets the names of servers with `completion
// servers`, from the current configuration; this does not start a server.
#include "base/mem.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "command_list.h"
#include "help.h"
#include <ctype.h>
#include <stdlib.h>

enum value_kind { VALUE_NONE, VALUE_FREE, VALUE_FILE, VALUE_SERVER };

static enum value_kind kind_of(const struct flag *flag)
{
    static const char *const files[] = {"FILE", "PATH", "DB", "AUDIT", NULL};
    for (size_t i = 0; flag->value && files[i]; i++)
        if (strcmp(flag->value, files[i]) == 0)
            return VALUE_FILE;
    if (strcmp(flag->name, "server") == 0)
        return VALUE_SERVER;
    return flag->value ? VALUE_FREE : VALUE_NONE;
}

static bool takes_server(const char *words) { return words && strcmp(words, "SERVER") == 0; }
static bool takes_command(const char *words) { return words && strcmp(words, "COMMAND") == 0; }

static void put_names(const struct command *const *commands)
{
    for (size_t i = 0; commands[i]; i++)
        printf("%s%s", i ? " " : "", commands[i]->name);
}

// ---- bash -----------------------------------------------------------------------------------

static void put_flags(const struct command *command, const char *variable, enum value_kind kind, bool all)
{
    printf(" %s='", variable);
    for (const struct flag *flag = command->flags; flag && flag->name; flag++)
        if (all || kind_of(flag) == kind) {
            printf("--%s ", flag->name);
            if (flag->letter)
                printf("-%c ", flag->letter);
        }
    printf("%s'", all ? "--help -h" : "");
}

static void bash(const struct command *const *commands)
{
    printf("# bash completion for postern, by `postern completion bash`\n"
           "_postern() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= config= i\n"
           "    local words= options= free= files= servers= paths=\n"
           "    COMPREPLY=()\n"
           "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
           "        case ${COMP_WORDS[i]} in\n"
           "        --config) config=${COMP_WORDS[i+1]} ;;\n"
           "        -*) ;;\n"
           "        *) [[ $command ]] || command=${COMP_WORDS[i]} ;;\n"
           "        esac\n"
           "    done\n"
           "    case $command in\n"
           "    '') options='--help --version' words='");
    put_names(commands);
    printf("' ;;\n");
    for (size_t i = 0; commands[i]; i++) {
        const struct command *command = commands[i];
        char *words = help_words(command);
        printf("    %s)", command->name);
        put_flags(command, "options", VALUE_NONE, true);
        put_flags(command, "free", VALUE_FREE, false);
        put_flags(command, "files", VALUE_FILE, false);
        put_flags(command, "servers", VALUE_SERVER, false);
        if (takes_command(words)) {
            printf(" words='");
            put_names(commands);
            printf("'");
        } else if (words) {
            printf(" words='%s'", words);
        }
        printf("%s ;;\n", command->max_args > 1 ? " paths=yes" : "");
        free(words);
    }
    printf("    esac\n"
           "    [[ \" $servers \" != *\" $prev \"* ]] || words=SERVER\n"
           "    [[ $words != SERVER ]] || words=$(postern completion servers ${config:+--config \"$config\"} "
           "2>/dev/null)\n"
           "    if [[ \" $files \" == *\" $prev \"* ]]; then\n"
           "        compopt -o filenames 2>/dev/null\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "    elif [[ \" $free \" == *\" $prev \"* ]]; then\n"
           "        return\n"
           "    elif [[ $cur == -* ]]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
           "    else\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
           "        [[ ${#COMPREPLY[@]} -gt 0 || ! $paths ]] || mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "    fi\n"
           "}\n"
           "complete -F _postern postern\n");
}

// ---- zsh ------------------------------------------------------------------------------------

// Escapes text inside '…' and […]: quotes end the string, brackets and colons the explanation.
static void put_zsh(const char *text)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", stdout);
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
}

static void put_zsh_flag(const struct flag *flag)
{
    static const char *const actions[] = {"", ": ", ":_files", ":_postern_servers"};
    bool many = flag->value && strstr(flag->value, "...");
    fputs(" \\\n            ", stdout);
    if (flag->letter)
        printf("'(--%s -%c)'{--%s,-%c}'[", flag->name, flag->letter, flag->name, flag->letter);
    else
        printf("'%s--%s[", many ? "*" : "", flag->name);
    put_zsh(flag->help);
    putchar(']');
    if (flag->value) {
        putchar(':');
        put_zsh(flag->value);
        fputs(actions[kind_of(flag)], stdout);
    }
    putchar('\'');
}

static void put_zsh_args(const struct command *const *commands, const struct command *command, const char *words)
{
    if (takes_server(words)) {
        printf(" \\\n            '1:server:_postern_servers'");
    } else if (takes_command(words)) {
        printf(" \\\n            '1:command:(");
        put_names(commands);
        printf(")'");
    } else if (words) {
        printf(" \\\n            '1:what:(%s)'", words);
    }
    printf("%s\n", command->max_args > 1 ? " \\\n            '*:argument:_files'" : "");
}

static void zsh(const struct command *const *commands)
{
    printf("#compdef postern\n"
           "# zsh completion for postern, by `postern completion zsh`\n"
           "_postern_servers() {\n"
           "    local -a names\n"
           "    names=(${(f)\"$(postern completion servers ${opt_args[--config]:+--config ${opt_args[--config]}} "
           "2>/dev/null)\"})\n"
           "    compadd -a names\n"
           "}\n"
           "_postern() {\n"
           "    local -a commands\n"
           "    commands=(");
    for (size_t i = 0; commands[i]; i++) {
        printf("\n        '%s:", commands[i]->name);
        put_zsh(commands[i]->summary);
        putchar('\'');
    }
    printf("\n    )\n"
           "    if ((CURRENT == 2)); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    local command=$words[2]\n"
           "    shift words\n"
           "    ((CURRENT--))\n"
           "    case $command in\n");
    for (size_t i = 0; commands[i]; i++) {
        const struct command *command = commands[i];
        char *words = help_words(command);
        printf("    %s)\n        _arguments", command->name);
        put_zsh_flag(&options_help);
        for (const struct flag *flag = command->flags; flag && flag->name; flag++)
            put_zsh_flag(flag);
        put_zsh_args(commands, command, words);
        printf("        ;;\n");
        free(words);
    }
    printf("    esac\n}\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _postern \"$@\"\nelse\n"
           "    compdef _postern postern\nfi\n");
}

// ---- fish -----------------------------------------------------------------------------------

static void put_fish(const char *text)
{
    putchar('\'');
    for (; *text; text++)
        if (*text == '\'' || *text == '\\')
            printf("\\%c", *text);
        else
            putchar(*text);
    putchar('\'');
}

static void put_fish_flag(const char *command, const struct flag *flag)
{
    static const char *const actions[] = {"", " -x", " -r -F", " -x -a '(__postern_servers)'"};
    printf("complete -c postern -n '__fish_seen_subcommand_from %s'", command);
    if (flag->letter)
        printf(" -s %c", flag->letter);
    printf(" -l %s%s -d ", flag->name, actions[kind_of(flag)]);
    put_fish(flag->help);
    putchar('\n');
}

static void fish(const struct command *const *commands)
{
    printf("# fish completion for postern, by `postern completion fish`\n"
           "function __postern_servers\n"
           "    postern completion servers 2>/dev/null\n"
           "end\n"
           "complete -c postern -n __fish_use_subcommand -l help -d 'List the commands'\n"
           "complete -c postern -n __fish_use_subcommand -l version -d 'Print the version'\n");
    for (size_t i = 0; commands[i]; i++) {
        const struct command *command = commands[i];
        char *words = help_words(command);
        printf("complete -c postern -n __fish_use_subcommand -f -a %s -d ", command->name);
        put_fish(command->summary);
        putchar('\n');
        put_fish_flag(command->name, &options_help);
        if (words)
            printf("complete -c postern -n '__fish_seen_subcommand_from %s'%s -a '", command->name,
                   command->max_args > 1 ? "" : " -f");
        if (takes_command(words))
            put_names(commands);
        else if (words)
            fputs(takes_server(words) ? "(__postern_servers)" : words, stdout);
        if (words)
            printf("'\n");
        for (const struct flag *flag = command->flags; flag && flag->name; flag++)
            put_fish_flag(command->name, flag);
        free(words);
    }
}

// ---- the command ----------------------------------------------------------------------------

static int servers(const struct flags *flags)
{
    int code = EXIT_OK;
    struct config *config = configuration_load(flags, &code);
    if (!config)
        return code;
    const struct server *all = config->servers.at;
    for (size_t i = 0; i < config->servers.count; i++)
        puts(all[i].name);
    config_unref(config);
    return EXIT_OK;
}

static int run(const struct flags *flags)
{
    const char *what = flags->args[0];
    if (strcmp(what, "servers") == 0)
        return servers(flags);
    if (strcmp(what, "bash") == 0)
        bash(flags->commands);
    else if (strcmp(what, "zsh") == 0)
        zsh(flags->commands);
    else if (strcmp(what, "fish") == 0)
        fish(flags->commands);
    else
        return fail_with(EXIT_USAGE, "completion %s: unknown argument; use bash, zsh, fish or servers", what);
    return EXIT_OK;
}

static const struct flag flags_table[] = {FLAG_CONFIG, {0}};

const struct command completion_command = {
    .name = "completion",
    .synopsis = "completion bash|zsh|fish|servers [--config FILE]",
    .summary = "Print a script that completes commands in a shell",
    .details = "bash     for ~/.bashrc: source <(postern completion bash)\n"
               "zsh      for ~/.zshrc, after compinit: source <(postern completion zsh)\n"
               "fish     postern completion fish >~/.config/fish/completions/postern.fish\n"
               "servers  lists the names of the configured servers; the scripts use it",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
