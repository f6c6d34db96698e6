// Owns the manual pages: the tables of commands and options as roff, in the macros of man(7).
//
// Lines are short and each sentence begins a line, as checkers of manual pages require.
#include "base/mem.h"
#include "command_list.h"
#include "config/config.h"
#include "help.h"
#include <ctype.h>
#include <stdlib.h>

#define PAGE_DATE "2026-11-16"
enum { LINE_CHARS = 79 };

struct manual_page {
    struct buf out;
    size_t column;
    bool bold;  // inside `…`
};

static void line(struct manual_page *page, const char *text)
{
    if (page->column)
        buf_put_char(&page->out, '\n');
    buf_put_text(&page->out, text);
    buf_put_char(&page->out, '\n');
    page->column = 0;
}

static void put_char(struct manual_page *page, struct buf *out, char c)
{
    switch (c) {
    case '\\': buf_put_text(out, "\\e"); break;
    case '-': buf_put_text(out, "\\-"); break;
    case '`':
        page->bold = !page->bold;
        buf_put_text(out, page->bold ? "\\fB" : "\\fR");
        break;
    default: buf_put_char(out, c);
    }
}

static void put_word(struct manual_page *page, struct span word)
{
    struct buf text = {0};
    for (size_t i = 0; i < word.len; i++)
        put_char(page, &text, word.at[i]);
    if (page->column && page->column + 1 + text.len > LINE_CHARS) {
        buf_put_char(&page->out, '\n');
        page->column = 0;
    }
    if (page->column)
        buf_put_char(&page->out, ' ');
    else if (strchr(".'", word.at[0]))
        buf_put_text(&page->out, "\\&");
    buf_put_span(&page->out, buf_span(&text));
    page->column += 1 + text.len;
    if (strchr(".!?", word.at[word.len - 1]) && !page->bold) {
        buf_put_char(&page->out, '\n');
        page->column = 0;
    }
    buf_release(&text);
}

// Filled text: its own line breaks are ignored.
static void put_text(struct manual_page *page, struct span text)
{
    while (text.len) {
        size_t len = 0;
        while (len < text.len && !isspace((unsigned char)text.at[len]))
            len++;
        if (len)
            put_word(page, span_make(text.at, len));
        text = span_after(text, len < text.len ? len + 1 : len);
    }
}

// One line in bold, without filling.
static void put_bold(struct manual_page *page, const char *before, struct span text)
{
    if (page->column)
        buf_put_char(&page->out, '\n');
    page->column = 0;
    buf_put_text(&page->out, before);
    for (size_t i = 0; i < text.len; i++)
        put_char(page, &page->out, text.at[i]);
    buf_put_char(&page->out, '\n');
}

static void entry(struct manual_page *page, struct span name) { put_bold(page, ".TP\n.B ", name); }

static void begin(struct manual_page *page, const char *name, const char *section, const char *what)
{
    *page = (struct manual_page){0};
    buf_printf(&page->out,
               ".\\\" Made by postern from its tables; tests/lint/man-pages fails when it is out of date.\n");
    buf_printf(&page->out, ".TH %s %s %s \"postern " POSTERN_VERSION "\" Postern\n.nh\n.ad l\n.SH NAME\n", name,
               section, PAGE_DATE);
    buf_printf(&page->out, "%s\n", what);
}

static void end(struct manual_page *page)
{
    if (page->column)
        buf_put_char(&page->out, '\n');
    fputs(buf_text(&page->out), stdout);
    buf_release(&page->out);
}

// ---- postern(1) -----------------------------------------------------------------------------

static void put_synopsis(struct manual_page *page, const struct command *command)
{
    const char *at = command->synopsis;
    struct span one;
    line(page, ".nf");
    while (help_next_synopsis(command, &at, &one))
        put_bold(page, ".B postern ", one);
    line(page, ".fi");
}

static size_t length_of_line(struct span text)
{
    const char *newline = text.len ? memchr(text.at, '\n', text.len) : NULL;
    return newline ? (size_t)(newline - text.at) : text.len;
}

// For a line such as "new     makes a token" that explains a word: where the word ends. Else 0.
static size_t word_explained(struct span row)
{
    for (size_t i = 1; i + 2 < row.len && row.at[0] != ' '; i++)
        if (row.at[i] == ' ' && row.at[i + 1] == ' ')
            return i;
    return 0;
}

static void put_details(struct manual_page *page, const char *details)
{
    struct span text = span_of(details);
    bool listing = false, fresh = true;  // fresh: a paragraph begins
    while (text.len) {
        size_t len = length_of_line(text);
        struct span row = span_make(text.at, len);
        size_t word = word_explained(row);
        if (word)
            entry(page, span_make(row.at, word));
        else if (row.len && (fresh || (listing && row.at[0] != ' ')))
            line(page, ".PP");
        listing = word || (listing && row.len && row.at[0] == ' ');
        fresh = !row.len;
        put_text(page, span_after(row, word));
        text = span_after(text, len < text.len ? len + 1 : len);
    }
}

static void put_command(struct manual_page *page, const struct command *command)
{
    put_bold(page, ".SS ", span_of(command->name));
    put_synopsis(page, command);
    line(page, ".PP");
    struct buf summary = {0};
    buf_printf(&summary, "%s.", command->summary);
    put_text(page, buf_span(&summary));
    buf_release(&summary);
    if (command->details)
        put_details(page, command->details);
    for (const struct flag *flag = command->flags; flag && flag->name; flag++) {
        struct buf name = {0};
        help_put_flag(flag, &name);
        entry(page, buf_span(&name));
        put_text(page, span_of(flag->help));
        buf_release(&name);
    }
}

struct pair {
    const char *name, *text;
};

static const struct pair variables[] = {
    {"POSTERN_CONFIG", "The configuration file, if `--config` is not given."},
    {"POSTERN_STATE",
     "The folder of the store, the vault's keys and the audit log, for those without a path in the configuration."},
    {"POSTERN_VAULT_KEY", "The keys that seal the tokens of users, if the configuration does not name a key file."},
    {"CREDENTIALS_DIRECTORY", "Where systemd puts the credential `postern-vault-key`."},
    {"XDG_CONFIG_HOME, XDG_STATE_HOME", "Instead of `~/.config` and `~/.local/state`."},
    {"BROWSER",
     "The program that `login` starts, split at spaces; the address is its last word, or in the place of `%s`."},
    {"http_proxy, https_proxy, no_proxy", "The proxy to servers that are not on loopback."},
    {NULL, NULL},
};

static const struct pair files[] = {
    {"./postern.json, ~/.config/postern/postern.json", "The configuration."},
    {"~/.local/state/postern/store.db", "The grants of users, sealed, and client registrations."},
    {"~/.local/state/postern/vault.key", "The keys that seal them, created at the first use. Keep a copy."},
    {"~/.local/state/postern/audit.db", "The audit log."},
    {NULL, NULL},
};

static void put_pairs(struct manual_page *page, const char *heading, const struct pair *pairs)
{
    line(page, heading);
    for (; pairs->name; pairs++) {
        entry(page, span_of(pairs->name));
        put_text(page, span_of(pairs->text));
    }
}

void manual_commands(const struct command *const *commands)
{
    struct manual_page page;
    begin(&page, "POSTERN", "1", "postern \\- an authenticated gateway to many MCP servers");
    line(&page, ".SH SYNOPSIS\n.B postern\n.I COMMAND\n.RI [ OPTIONS ]\n.SH DESCRIPTION");
    put_text(
        &page,
        span_of("Callers reach many servers of the Model Context Protocol through one endpoint that "
                "authenticates them, checks every call against policy files, and keeps the tokens of users for the "
                "servers behind it. The other commands use the same servers from the command line."));
    line(&page, ".PP");
    put_text(
        &page,
        span_of("Standard output is for data: tables and text on a terminal, JSON in a pipe or with `--json` (`policy` "
                "prints JSON only with `--json`, because its findings are read in logs). "
                "Standard error is for people. `--name VALUE` and `--name=VALUE` are the same, and `--` ends "
                "the options."));
    line(&page, ".SH COMMANDS");
    for (size_t i = 0; commands[i]; i++)
        put_command(&page, commands[i]);
    line(&page, ".SH \"EXIT STATUS\"");
    for (const struct help_status *status = help_statuses; status->text; status++) {
        char code[8];
        snprintf(code, sizeof code, "%d", status->code);
        entry(&page, span_of(code));
        put_text(&page, span_of(status->text));
    }
    put_pairs(&page, ".SH ENVIRONMENT", variables);
    put_pairs(&page, ".SH FILES", files);
    line(&page, ".SH \"SEE ALSO\"\n.BR postern.json (5)");
    end(&page);
}

// ---- postern.json(5) ------------------------------------------------------------------------

static void put_kind(struct manual_page *page, const struct option *row)
{
    struct buf text = {0};
    for (int i = 0; row->type == OPTION_ENUM && row->choices[i]; i++)
        buf_printf(&text, "%s`\"%s\"`", i ? ", " : "", row->choices[i]);
    if (row->type != OPTION_ENUM)
        buf_put_text(&text, option_type_text(row->type));
    if (row->sub)
        buf_printf(&text, ", see %s", row->sub->title);
    if (row->fallback)
        buf_printf(&text, "; default `%s`", row->fallback);
    put_text(page, buf_span(&text));
    line(page, ".br");
    buf_release(&text);
}

static void put_table(struct manual_page *page, const struct option_table *table, const struct option_table **seen,
                      size_t room)
{
    size_t at = 0;
    while (at < room && seen[at] && seen[at] != table)
        at++;
    if (at == room || seen[at])
        return;
    seen[at] = table;
    put_bold(page, ".SS ", span_of(table->title));
    for (const struct option *row = table->rows; row->name; row++) {
        entry(page, span_of(row->name));
        put_kind(page, row);
        put_text(page, span_of(row->help));
    }
    for (const struct option *row = table->rows; row->name; row++)
        if (row->sub)
            put_table(page, row->sub, seen, room);
}

void manual_config(void)
{
    struct manual_page page;
    const struct option_table *seen[64] = {NULL};
    begin(&page, "POSTERN.JSON", "5", "postern.json \\- configuration of postern");
    line(&page, ".SH DESCRIPTION");
    put_text(&page,
             span_of("A JSON file: `--config`, else `$POSTERN_CONFIG`, `./postern.json`, "
                     "`$XDG_CONFIG_HOME/postern/postern.json`. Unknown keys are errors. `${NAME}` and "
                     "`${NAME:-default}` in strings are replaced from the environment; a missing variable without a "
                     "default is an error. `postern config check` reports errors, `postern config show` prints the "
                     "values in force, and `postern config schema` prints a JSON Schema for editors."));
    line(&page, ".SH OPTIONS");
    put_table(&page, &config_options, seen, sizeof seen / sizeof *seen);
    line(&page, ".SH EXAMPLES\n.EX");
    line(&page, "{\n  \"listen\": [{\"address\": \"127.0.0.1:8080\"}],\n  \"mcpServers\": {\n"
                "    \"files\": {\"command\": \"mcp\\-files\", \"args\": [\"/srv/share\"]},\n"
                "    \"tracker\": {\"url\": \"https://tracker.example/mcp\",\n"
                "                \"auth\": {\"mode\": \"shared\"}}\n  }\n}\n.EE");
    line(&page, ".SH \"SEE ALSO\"\n.BR postern (1)");
    end(&page);
}
