// The definition of a command: a row in the table of commands, with rows for its flags.
#ifndef CMD_BASE_OPTIONS_H
#define CMD_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A flag without `value` is a switch. The result is stored at the offset: bool for switches, const char * else. If the
// value is written "NAME...", the flag may be given FLAG_MANY times, and its offset is that of an array with a NULL at
// the end.
struct flag {
    const char *name;   // "config"
    const char *value;  // "FILE", or NULL
    size_t offset;
    char letter;  // 'f' if -f is an alias, or 0
    const char *help;
};

enum { FLAG_MANY = 16, FLAG_ARGS = 64 };

struct command;

// The flags of all commands. The rows of a command decide which of them it accepts.
struct flags {
    const char *config, *control, *listen, *profile, *url, *search;
    const char *caller_tokens;
    const char *file, *subject, *role[FLAG_MANY + 1], *tenant, *expires, *overlap, *description;
    const char *policy, *server, *tool, *resource, *template, *prompt, *arguments;
    const char *inventory, *inventory_before, *save;
    const char *since, *until, *limit;
    const char *callback_host, *callback_port, *timeout, *issuer, *finish, *redirect, *browser_cmd;
    bool defaults, device, token_stdin, no_browser, headless, interactive, reregister, verbose, all, purge;
    bool direct, start, force, paste_code, man, registration, offline;
    bool stdio, replace, json, help, markdown, show_args, check, fail_on_new_access, denied, follow;
    const char *args[FLAG_ARGS];
    int count;
    const struct command *const *commands;  // the table, for commands that describe it; NULL at its end
};

struct command {
    const char *name, *synopsis, *summary, *details;
    const struct flag *flags;  // the last row does not have a name
    int min_args, max_args;
    bool starts_servers;
    int (*run)(const struct flags *flags);
};

// Reads the words after the command's name into `flags`, and returns the exit code. It stops at --help.
int options_parse(const struct command *command, int argc, char **argv, struct flags *flags);
extern const struct flag options_help;  // --help, which every command accepts
// Reads "1h" (ago), 2027-01-31 (its beginning) or 2027-01-31T12:00:00Z, in UTC, as milliseconds since the epoch.
bool options_time(const char *text, int64_t *ms);

#define FLAG(member) FLAG_LETTER(member, 0)
#define FLAG_LETTER(member, letter) offsetof(struct flags, member), letter
#define FLAG_CONFIG                                                                                        \
    {                                                                                                      \
        "config", "FILE", FLAG(config),                                                                    \
            "Configuration file; default: $POSTERN_CONFIG, ./postern.json, ~/.config/postern/postern.json" \
    }
#define FLAG_OFFLINE                                                                                             \
    {                                                                                                            \
        "offline", NULL, FLAG(offline),                                                                          \
            "check: for use on another host, such as in CI: variables may be unset, and files and programs are " \
            "not checked"                                                                                        \
    }
#define FLAG_URL                                                                             \
    {                                                                                        \
        "url", "URL", FLAG(url), "Use the server at this URL instead of a configured server" \
    }
#define FLAG_TOKEN_FILE                                                     \
    {                                                                       \
        "token-file", "FILE", FLAG(caller_tokens),                          \
            "With --url: the file with the bearer token to send; default: " \
            "$POSTERN_TOKEN"                                                \
    }
#define FLAG_TENANT                                                   \
    {                                                                 \
        "tenant", "NAME", FLAG(tenant), "Only servers of this tenant" \
    }
#define FLAG_SERVER_TENANT                                         \
    {                                                              \
        "tenant", "NAME", FLAG(tenant), "The tenant of the server" \
    }
#define FLAG_CONTROL                                                                                           \
    {                                                                                                          \
        "control", "PATH", FLAG(control), "The gateway's control socket, instead of that of the configuration" \
    }
#define FLAG_JSON                                                  \
    {                                                              \
        "json", NULL, FLAG(json), "Print JSON, even on a terminal" \
    }

#define FLAG_INTERACTIVE                                                            \
    {                                                                               \
        "interactive", NULL, FLAG(interactive),                                     \
            "On a terminal: log in with the browser if the server requires a login" \
    }
#define FLAG_HEADLESS                                                                          \
    {                                                                                          \
        "headless", NULL, FLAG(headless),                                                      \
            "Log in without a browser: for servers that grant access without user interaction" \
    }

#endif
