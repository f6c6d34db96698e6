// Owns the list of commands and flag parsing.
#include "cmd/command.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/scan.h"
#include "cmd.h"
#include "help.h"
#include "loop/spawner.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FAIL_CHARS 4096

const struct command *const command_list[] = {
    &command_serve,   &command_tools,      &command_resources,
    &command_prompts, &command_call,       &command_read,
    &command_prompt,  &command_servers,    &command_config,
    &command_token,   &command_policy,     &command_audit,
    &command_login,   &command_logout,     &command_connections,
    &command_doctor,  &command_vault,      &command_version,
    &command_help,    &command_completion, NULL,
};

int cmd_fail(int code, const char *format, ...)
{
    char text[FAIL_CHARS];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cmd_tame(text, strlen(text), "\n\t");
    fprintf(stderr, "postern: %s\n", text);
    return code;
}

void cmd_tame(char *text, size_t len, const char *allowed)
{
    unsigned char *bytes = (unsigned char *)text;
    scan_mend(text, len);
    for (size_t i = 0; i < len; i++)
        if (bytes[i] == 0xC2 && i + 1 < len && bytes[i + 1] >= 0x80 && bytes[i + 1] < 0xA0)  // U+0080 to U+009F
            bytes[i] = bytes[i + 1] = ' ';
        else if (!bytes[i] || (bytes[i] < 0x20 && !strchr(allowed, bytes[i])) || bytes[i] == 0x7f)
            bytes[i] = ' ';
}

int cmd_fail_err(const struct err *err)
{
    bool config = err->code == ERR_CONFIG || err->code == ERR_PARSE;
    return cmd_fail(config ? EXIT_CONFIG : EXIT_UNAVAILABLE, "%s", err->detail);
}

bool cmd_wants_json(const struct flags *flags) { return flags->json || !isatty(STDOUT_FILENO); }

static json_t *bearer_header(const struct secret *token)
{
    struct buf header = {0};
    buf_put_text(&header, "Bearer ");
    buf_put_span(&header, secret_span(token));
    json_t *headers = json_pack("{s:s}", "Authorization", buf_text(&header));
    secret_wipe(header.at, header.len);
    buf_release(&header);
    return headers;
}

struct config *cmd_config_of_url(const char *url, const struct secret *token, struct err *err)
{
    json_t *server = json_pack("{s:s}", "url", url);
    if (token && token->len)
        json_object_set_new(server, "headers", bearer_header(token));
    json_t *tree = json_pack("{s:{s:o}}", "mcpServers", "url", server);
    struct config *config = config_parse(tree, "--url", err);
    json_decref(tree);
    return config;
}

void cmd_show_stderr(const char *server, const char *lines)
{
    if (!*lines)
        return;
    fprintf(stderr, "postern: the last lines that server \"%s\" wrote to stderr:\n", server);
    while (*lines) {
        size_t len = strcspn(lines, "\n");
        char *line = mem_copy(lines, len);
        cmd_tame(line, len, "\t");
        fprintf(stderr, "  %s\n", line);
        free(line);
        lines += len + (lines[len] == '\n');
    }
}

static struct config *load_offline(const char *path, struct err *err)
{
    struct option_unset unset = {0};
    struct config *config = config_load_offline(path, &unset, err);
    for (char *name = buf_text(&unset.names), *end; config && (end = strchr(name, '\n')); name = end + 1)
        fprintf(stderr, "postern: note: %.*s is not set; what depends on its value is not checked\n", (int)(end - name),
                name);
    buf_release(&unset.names);
    return config;
}

static int no_config(void)
{
    char *here = getcwd(NULL, 0);
    int code = cmd_fail(EXIT_CONFIG,
                        "no configuration: give --config FILE, or create postern.json in %s or in ~/.config/postern "
                        "(see docs/config.md)",
                        here ? here : "this folder");
    free(here);
    return code;
}

struct config *cmd_config(const struct flags *flags, int *exit_code)
{
    struct err err = {0};
    struct config *config = NULL;
    if (flags->url) {
        config = cmd_config_of_url(flags->url, NULL, &err);
    } else {
        char *path = config_path(flags->config);
        if (!path) {
            *exit_code = no_config();
            return NULL;
        }
        config = flags->offline ? load_offline(path, &err) : config_load(path, &err);
        free(path);
    }
    if (!config)
        *exit_code = cmd_fail(EXIT_CONFIG, "%s", err.detail);
    return config;
}

// ---- flags ----------------------------------------------------------------------------------

// `name` as it stands after "--", or one letter after "-".
static const struct flag *find_flag(const struct command *command, struct span name, bool letter)
{
    for (const struct flag *flag = command->flags; flag->name; flag++)
        if (letter ? name.len == 1 && name.at[0] == flag->letter : span_is(name, flag->name))
            return flag;
    return span_is(name, letter ? "h" : "help") ? &help_flag_help : NULL;
}

static int unknown_flag(const struct command *command, const char *given)
{
    const char *names[32] = {"help"};
    size_t count = 1;
    for (const struct flag *flag = command->flags; flag->name && count < 31; flag++)
        names[count++] = flag->name;
    char *name = mem_copy(given, strcspn(given, "="));
    const char *near = option_nearest(name, names);
    free(name);
    return cmd_fail(EXIT_USAGE, "%s: unknown option --%s%s%s%s", command->name, given, near ? "; did you mean --" : "",
                    near ? near : "", near ? "?" : "; see --help");
}

// False: it was given too often.
static bool take_value(const struct flag *flag, const char **slot, const char *value)
{
    bool many = strstr(flag->value, "...") != NULL;
    for (int i = 0; many && *slot; slot++)
        if (++i == FLAG_MANY)
            return false;
    *slot = value;
    return true;
}

static int unexpected(const struct command *command, const char *word)
{
    return cmd_fail(EXIT_USAGE, "%s: unexpected argument '%s'; usage: postern %s", command->name, word,
                    command->synopsis);
}

// The option at argv[*at], which moves on if the next word is its value.
static int parse_flag(const struct command *command, int argc, char **argv, int *at, struct flags *flags)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    bool letter = word[1] != '-';
    const char *name = word + (letter ? 1 : 2);
    const struct flag *flag =
        find_flag(command, span_make(name, equals ? (size_t)(equals - name) : strlen(name)), letter);
    if (!flag && letter)
        return cmd_fail(EXIT_USAGE, "%s: unknown option %s; see --help: most begin with --, and after -- none do",
                        command->name, word);
    if (!flag)
        return unknown_flag(command, name);
    void *slot = (char *)flags + flag->offset;
    if (!flag->value && equals)
        return cmd_fail(EXIT_USAGE, "%s: --%s takes no value", command->name, flag->name);
    if (!flag->value) {
        *(bool *)slot = true;
        return EXIT_OK;
    }
    if (!equals && *at + 1 == argc)
        return cmd_fail(EXIT_USAGE, "%s: --%s needs a %s", command->name, flag->name, flag->value);
    if (!take_value(flag, slot, equals ? equals + 1 : argv[++*at]))
        return cmd_fail(EXIT_USAGE, "%s: --%s more than %d times", command->name, flag->name, FLAG_MANY);
    return EXIT_OK;
}

static int parse(const struct command *command, int argc, char **argv, struct flags *flags)
{
    bool only_args = false;
    int code = EXIT_OK;
    for (int i = 0; i < argc && code == EXIT_OK && !flags->help; i++) {
        if (!only_args && strcmp(argv[i], "--") == 0)
            only_args = true;
        else if (!only_args && argv[i][0] == '-' && argv[i][1])
            code = parse_flag(command, argc, argv, &i, flags);
        else if (flags->count == command->max_args)
            code = unexpected(command, argv[i]);
        else
            flags->args[flags->count++] = argv[i];
    }
    return code;
}

int cmd_unknown(const char *name)
{
    const char *names[sizeof command_list / sizeof *command_list] = {NULL};
    for (size_t i = 0; command_list[i]; i++)
        names[i] = command_list[i]->name;
    if (*name == '-')
        return cmd_fail(EXIT_USAGE, "%s: the command comes first, then its options; see 'postern --help'", name);
    const char *near = option_nearest(name, names);
    return cmd_fail(EXIT_USAGE, "unknown command '%s'%s%s%s; see 'postern --help'", name,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

const struct command *cmd_find(const char *name)
{
    for (size_t i = 0; command_list[i]; i++)
        if (strcmp(name, command_list[i]->name) == 0)
            return command_list[i];
    return NULL;
}

static int run(const struct command *command, int argc, char **argv)
{
    struct flags flags = {0};
    int code = parse(command, argc, argv, &flags);
    if (code != EXIT_OK)
        return code;
    if (flags.help) {
        help_print(command);
        return EXIT_OK;
    }
    if (flags.count < command->min_args - (flags.url && command->min_args > 0 ? 1 : 0))
        return cmd_fail(EXIT_USAGE, "usage: postern %s", command->synopsis);
    struct err err;
    if (command->starts_servers && !spawner_start(&err))
        return cmd_fail_err(&err);
    code = command->run(&flags);
    spawner_stop();
    return code;
}

// What was printed must have got there: a full disk behind a redirection is an error, a reader that has gone is not.
static int flush(int code)
{
    bool failed = fflush(stdout) != 0 || ferror(stdout);
    return failed && errno != EPIPE && code == EXIT_OK
               ? cmd_fail(EXIT_UNAVAILABLE, "standard output: %s", strerror(errno))
               : code;
}

int command_main(int argc, char **argv)
{
    json_setup();
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        help_commands(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(name, "--version") == 0)
        name = "version";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    const struct command *command = cmd_find(name);
    return command ? flush(run(command, argc - 2, argv + 2)) : cmd_unknown(name);
}
