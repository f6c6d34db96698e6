// Owns reading command lines: the rows of a command's flags, and values that several commands take.
#include "cmd/base/options.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd/base/fail.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct flag options_help = {"help", NULL, FLAG_LETTER(help, 'h'), "Print this help"};

// `name` is the text after "--", or one letter after "-".
static const struct flag *find_flag(const struct command *command, struct span name, bool letter)
{
    for (const struct flag *flag = command->flags; flag->name; flag++)
        if (letter ? name.len == 1 && name.at[0] == flag->letter : span_is(name, flag->name))
            return flag;
    return span_is(name, letter ? "h" : "help") ? &options_help : NULL;
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
    return fail_with(EXIT_USAGE, "%s: unknown option --%s%s%s%s", command->name, given, near ? "; did you mean --" : "",
                     near ? near : "", near ? "?" : "; see --help");
}

// False: it was given too many times.
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
    return fail_with(EXIT_USAGE, "%s: unexpected argument '%s'; usage: postern %s", command->name, word,
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
        return fail_with(
            EXIT_USAGE,
            "%s: unknown option %s; see --help: long options begin with --, and words after -- are not options",
            command->name, word);
    if (!flag)
        return unknown_flag(command, name);
    void *slot = (char *)flags + flag->offset;
    if (!flag->value && equals)
        return fail_with(EXIT_USAGE, "%s: --%s takes no value", command->name, flag->name);
    if (!flag->value) {
        *(bool *)slot = true;
        return EXIT_OK;
    }
    if (!equals && *at + 1 == argc)
        return fail_with(EXIT_USAGE, "%s: --%s needs a %s", command->name, flag->name, flag->value);
    if (!take_value(flag, slot, equals ? equals + 1 : argv[++*at]))
        return fail_with(EXIT_USAGE, "%s: --%s is given more than %d times", command->name, flag->name, FLAG_MANY);
    return EXIT_OK;
}

int options_parse(const struct command *command, int argc, char **argv, struct flags *flags)
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

bool options_time(const char *text, int64_t *ms)
{
    struct tm parts = {0};
    int64_t ago;
    if (option_duration(text, &ago)) {
        *ms = clock_wall_s() * 1000 - ago;
        return *ms > 0;
    }
    const char *end = strptime(text, "%Y-%m-%d", &parts);
    if (end && *end == 'T')
        end = strptime(end, "T%H:%M:%SZ", &parts);
    if (!end || *end)
        return false;
    *ms = (int64_t)timegm(&parts) * 1000;
    return *ms > 0;
}
