// What commands are made of: flags as rows, exit codes, and what most of them need.
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include "base/err.h"
#include "base/secret.h"
#include "gate/config.h"
#include <stdbool.h>
#include <stddef.h>

enum exit_code {
    EXIT_OK = 0,
    EXIT_NEGATIVE = 1,  // it worked, and the answer is no: a tool said isError, a check found something
    EXIT_USAGE = 2,
    EXIT_CONFIG = 3,       // configuration missing or wrong
    EXIT_UNAVAILABLE = 4,  // a server could not be reached or did not answer
    // Of logins (docs/oauth.md).
    EXIT_DENIED = 10,
    EXIT_TIMEOUT = 11,
    EXIT_PORT = 12,
    EXIT_REGISTRATION = 13,
    EXIT_DISCOVERY = 14,
    EXIT_TOKEN = 15,
    EXIT_STORE = 16,
    EXIT_ANSWER = 17,  // the answer to the authorization request was not acceptable
};

// A flag without `value` is a switch. The result goes to the offset: bool for switches, const char * else. If the value
// is written "NAME...", the flag may be given FLAG_MANY times, and its offset is that of an array with a NULL at the end.
struct flag {
    const char *name;   // "config"
    const char *value;  // "FILE", or NULL
    size_t offset;
    char letter;  // 'f' if -f is the same, or 0
    const char *help;
};

enum { FLAG_MANY = 16 };

// Every command's flags fill this; which of them a command takes is up to its rows.
struct flags {
    const char *config, *listen, *profile, *url, *search;
    const char *token_file;
    const char *file, *subject, *role[FLAG_MANY + 1], *tenant, *expires, *overlap, *description;
    const char *policy, *server, *tool, *resource, *template, *prompt, *arguments;
    const char *inventory, *inventory_before;
    const char *since, *until, *limit;
    const char *callback_host, *callback_port, *timeout, *issuer, *finish, *redirect, *browser_cmd;
    bool defaults, device, token_stdin, no_browser, headless, interactive, reregister, verbose, all, purge;
    bool start, force, paste_code, man, registration, offline;
    bool stdio, json, help, markdown, show_args, check, fail_on_new_access, denied, follow;
    const char *args[8];
    int count;
};

struct command {
    const char *name, *synopsis, *summary, *details;
    const struct flag *flags;  // ends with a row without a name
    int min_args, max_args;
    bool starts_servers;
    int (*run)(const struct flags *flags);
};

extern const struct command command_serve, command_tools, command_resources, command_prompts, command_call,
    command_read, command_prompt, command_servers, command_config, command_token, command_policy, command_audit,
    command_vault, command_version, command_help, command_completion, command_login, command_logout,
    command_connections, command_doctor;

extern const struct command *const command_list[];  // NULL at the end
const struct command *cmd_find(const char *name);   // NULL: there is none
int cmd_unknown(const char *name);                  // says so, and which one may be meant; the exit code

#define FLAG(member) FLAG_LETTER(member, 0)
#define FLAG_LETTER(member, letter) offsetof(struct flags, member), letter
#define FLAG_CONFIG                                                                                    \
    {                                                                                                  \
        "config", "FILE", FLAG(config),                                                                \
            "Configuration file; else $POSTERN_CONFIG, ./postern.json, ~/.config/postern/postern.json" \
    }
#define FLAG_OFFLINE                                                                                            \
    {                                                                                                           \
        "offline", NULL, FLAG(offline),                                                                         \
            "check: away from the host, in CI: variables may be unset, and files and programs of the host are " \
            "not looked for"                                                                                    \
    }
#define FLAG_URL                                                                              \
    {                                                                                         \
        "url", "URL", FLAG(url), "Talk to the server at this URL instead of a configured one" \
    }
#define FLAG_TOKEN_FILE                                             \
    {                                                               \
        "token-file", "FILE", FLAG(token_file),                     \
            "With --url: send the bearer token in this file, else " \
            "$POSTERN_TOKEN"                                        \
    }
#define FLAG_TENANT                                                  \
    {                                                                \
        "tenant", "NAME", FLAG(tenant), "The servers of this tenant" \
    }
#define FLAG_JSON                                                  \
    {                                                              \
        "json", NULL, FLAG(json), "JSON output also on a terminal" \
    }

#define FLAG_INTERACTIVE                                                                                             \
    {                                                                                                                \
        "interactive", NULL, FLAG(interactive), "On a terminal: log in with the browser when the server asks for it" \
    }
#define FLAG_HEADLESS                                                                                      \
    {                                                                                                      \
        "headless", NULL, FLAG(headless), "Log in without a browser: one GET, for servers that ask nobody" \
    }

// Prints "postern: …" and returns the exit code.
int cmd_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cmd_fail_err(const struct err *err);
// What a server says cannot steer the terminal: control characters become spaces, but for the allowed ones. And it is
// UTF-8.
void cmd_tame(char *text, size_t len, const char *allowed);
// Shows the last lines of a failed server's stderr; nothing if there are none.
void cmd_show_stderr(const char *server, const char *lines);
// Loads the configuration; with --url, makes one of a single server named "url"; with --offline, notes on stderr which
// variables are not set. NULL: exit code set.
struct config *cmd_config(const struct flags *flags, int *exit_code);
// A single server named "url", which gets the token as its bearer token; NULL: none.
struct config *cmd_config_of_url(const char *url, const struct secret *token, struct err *err) MUST_CHECK;
// "1h" ago, 2027-01-31 (its beginning) or 2027-01-31T12:00:00Z, all UTC, in milliseconds since the epoch.
bool cmd_read_time(const char *text, int64_t *ms);
bool cmd_wants_json(const struct flags *flags);
// The audit database: --file, else that of the configuration. NULL: exit code set. The caller frees it.
char *cmd_audit_path(const struct flags *flags, int *exit_code);

#endif
