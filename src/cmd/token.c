// Owns `postern token new|list|rotate|revoke`: the life of static bearer tokens, in the tokens file.
#include "auth/caller/tokens.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/secret.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "cmd/base/token_audit.h"
#include "command_list.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DEFAULT_OVERLAP "24h"
#define SPAN_MAX_SECONDS ((int64_t)100 * 366 * 86400)

enum { ACTIVE_MAX = 2 };  // of one subject: the current token and its replacement

// "90d", "12h", "30m", "0s"
static bool read_span(const char *text, int64_t *seconds)
{
    size_t digits = strspn(text, "0123456789"), unit = strspn(text + digits, "dhms");
    int64_t ms;
    if (digits == 0 || digits > 9 || text[digits + unit] || !option_duration(text, &ms) || ms / 1000 > SPAN_MAX_SECONDS)
        return false;
    *seconds = ms / 1000;
    return true;
}

// The value of --expires as written to the file: a date unchanged, a span counted from now.
static const char *read_expires(const char *text, int64_t now, char room[32])
{
    int64_t at, seconds;
    bool date = caller_tokens_date(text, &at);
    if (!date && read_span(text, &seconds))
        caller_tokens_stamp(at = now + seconds, room);
    else if (!date) {
        (void)fail_with(EXIT_USAGE, "token: --expires must be a date such as 2027-01-31 or 2027-01-31T12:00:00Z, or a "
                                    "time from now such as 90d");
        return NULL;
    }
    if (at > now)
        return date ? text : room;
    (void)fail_with(EXIT_USAGE, "token: --expires %s is not in the future", text);
    return NULL;
}

static const char *tenant_of(const struct caller_token *entry) { return entry->tenant ? entry->tenant : "default"; }

static bool is_shown(const struct caller_token *entry, const struct flags *flags)
{
    return !flags->tenant || strcmp(flags->tenant, tenant_of(entry)) == 0;
}

// Whether the subject may have one more active token. Prints an error if not.
static bool has_room(const struct caller_tokens *file, const struct caller_token *entry, int64_t now)
{
    struct buf ids = {0};
    int active = 0;
    for (size_t i = 0; i < caller_tokens_count(file); i++) {
        const struct caller_token *other = caller_tokens_at(file, i);
        if (strcmp(other->subject, entry->subject) != 0 || strcmp(tenant_of(other), tenant_of(entry)) != 0 ||
            caller_tokens_expired(other, now))
            continue;
        buf_printf(&ids, "%s%s", active++ ? ", " : "", other->id);
    }
    if (active >= ACTIVE_MAX)
        (void)fail_with(EXIT_NEGATIVE,
                        "token: \"%s\" has %d active tokens already (%s), the maximum: revoke one of them first",
                        entry->subject, active, buf_text(&ids));
    buf_release(&ids);
    return active < ACTIVE_MAX;
}

// Records the change and saves it.
static int save(const struct flags *flags, struct caller_tokens_edit *edit, const struct token_change *change)
{
    struct err err = {0};
    int code = EXIT_OK, ignored;
    if (!token_audit_change(flags, change, NULL, &code) || caller_tokens_edit_save(edit, &err))
        return code;
    (void)token_audit_change(flags, change, &err, &ignored);
    return fail_with_err(&err);
}

// Adds an entry like this one, with a new id and digest, and saves. If `like` has an id, the new token replaces that
// one.
static int issue(const struct flags *flags, struct caller_tokens_edit *edit, const struct caller_token *like,
                 struct caller_token_minted *minted)
{
    struct err err = {0};
    const char *replaces = like->id;
    struct caller_token entry = *like;
    char created[32];
    do
        caller_tokens_mint(minted);
    while (caller_tokens_named(caller_tokens_edit_before(edit), span_of(minted->id)));
    caller_tokens_stamp(clock_wall_s(), created);
    entry.id = minted->id;
    entry.sha256 = minted->sha256;
    entry.created = created;
    if (!caller_tokens_edit_put(edit, &entry, &err))
        return fail_with(EXIT_USAGE, "%s", err.detail);
    return save(flags, edit, &(struct token_change){flags->args[0], &entry, replaces});
}

// Only the token goes to stdout, so that it can be piped.
static int hand_over(const struct caller_token_minted *minted, const struct caller_token *entry,
                     const struct flags *flags)
{
    if (puts(minted->token) == EOF || fflush(stdout) != 0)
        return fail_with(
            EXIT_UNAVAILABLE,
            "the token could not be printed and is lost; remove it with: postern token revoke %s --file %s", minted->id,
            flags->file);
    if (!isatty(STDERR_FILENO))
        return EXIT_OK;
    fprintf(stderr,
            "\n"
            "This is token %s of \"%s\". It is shown only once: %s contains only its SHA-256.\n"
            "Give it to its owner, who sends it as \"Authorization: Bearer TOKEN\".\n",
            minted->id, entry->subject, flags->file);
    if (entry->expires)
        fprintf(stderr, "It expires %s; 'postern token rotate %s --file %s' replaces it.\n", entry->expires, minted->id,
                flags->file);
    else
        fprintf(stderr, "It does not expire; --expires sets an end.\n");
    return EXIT_OK;
}

static int run_new(const struct flags *flags)
{
    struct err err = {0};
    int64_t now = clock_wall_s();
    char room[32];
    struct caller_token_minted minted = {0};
    struct caller_token entry = {
        .subject = flags->subject, .roles = flags->role, .tenant = flags->tenant, .description = flags->description};
    if (!flags->subject)
        return fail_with(EXIT_USAGE, "token new: --subject is missing; give the name of the token's owner");
    if (flags->expires && !(entry.expires = read_expires(flags->expires, now, room)))
        return EXIT_USAGE;
    struct caller_tokens_edit *edit = caller_tokens_edit_start(flags->file, true, &err);
    if (!edit)
        return fail_with_err(&err);
    int code =
        has_room(caller_tokens_edit_before(edit), &entry, now) ? issue(flags, edit, &entry, &minted) : EXIT_NEGATIVE;
    caller_tokens_edit_free(edit);
    if (code == EXIT_OK)
        code = hand_over(&minted, &entry, flags);
    secret_wipe(&minted, sizeof minted);
    return code;
}

// Reads an id, or a whole token, which contains it: when a token has leaked, the whole token is at hand.
static bool read_id(const char *text, struct span *id)
{
    *id = span_of(text);
    if (!span_starts(*id, CALLER_TOKEN_PREFIX))
        return id->len == CALLER_TOKEN_ID_CHARS;
    if (!caller_tokens_is_token(*id))
        return false;
    *id = span_make(text + sizeof CALLER_TOKEN_PREFIX - 1, CALLER_TOKEN_ID_CHARS);
    return true;
}

// Opens the file for a change of the entry named on the command line. NULL: exit code set.
static struct caller_tokens_edit *start_on(const struct flags *flags, const struct caller_token **out, int *code)
{
    struct err err = {0};
    struct span id;
    if (!read_id(flags->args[1], &id)) {  // the text is not printed: it may be nearly a token
        *code = fail_with(EXIT_USAGE, "token %s: ID must be 8 letters and digits, or a whole token without a typo",
                          flags->args[0]);
        return NULL;
    }
    struct caller_tokens_edit *edit = caller_tokens_edit_start(flags->file, false, &err);
    if (!edit) {
        *code = fail_with_err(&err);
        return NULL;
    }
    if ((*out = caller_tokens_named(caller_tokens_edit_before(edit), id)) && is_shown(*out, flags))
        return edit;
    caller_tokens_edit_free(edit);
    *code = fail_with(EXIT_NEGATIVE, "token %s: %s has no token with id \"%.*s\"%s%s", flags->args[0], flags->file,
                      SPAN_ARG(id), flags->tenant ? " of tenant " : "", flags->tenant ? flags->tenant : "");
    return NULL;
}

// The old token ends after the overlap, or when it would have ended anyway.
static int rotate(struct caller_tokens_edit *edit, const struct caller_token *old, const struct flags *flags,
                  int64_t overlap)
{
    struct err err = {0};
    int64_t now = clock_wall_s(), end = now + overlap;
    char room[32], end_text[32];
    struct caller_token_minted minted = {0};
    struct caller_token ending = *old, entry = *old;
    if (flags->expires && !(entry.expires = read_expires(flags->expires, now, room)))
        return EXIT_USAGE;
    if (!flags->expires && caller_tokens_expired(old, now))
        return fail_with(EXIT_NEGATIVE, "token rotate: %s has expired (%s): give --expires for the new token", old->id,
                         old->expires);
    if (!has_room(caller_tokens_edit_before(edit), &entry, now))
        return EXIT_NEGATIVE;
    caller_tokens_stamp(end, end_text);
    if (!old->expires_at || old->expires_at > end)
        ending.expires = end_text;
    if (!caller_tokens_edit_put(edit, &ending, &err))
        return fail_with_err(&err);
    int code = issue(flags, edit, &entry, &minted);
    if (code == EXIT_OK)
        code = hand_over(&minted, &entry, flags);
    if (code == EXIT_OK && isatty(STDERR_FILENO))
        fprintf(stderr, "The old token, %s, is valid until %s.\n", old->id, ending.expires);
    secret_wipe(&minted, sizeof minted);
    return code;
}

static int run_rotate(const struct flags *flags)
{
    const char *text = flags->overlap ? flags->overlap : DEFAULT_OVERLAP;
    const struct caller_token *old;
    int64_t overlap;
    int code = EXIT_OK;
    if (!read_span(text, &overlap))
        return fail_with(EXIT_USAGE, "token rotate: --overlap must be a time such as 24h or 0s");
    struct caller_tokens_edit *edit = start_on(flags, &old, &code);
    if (!edit)
        return code;
    code = rotate(edit, old, flags, overlap);
    caller_tokens_edit_free(edit);
    return code;
}

static int run_revoke(const struct flags *flags)
{
    const struct caller_token *entry;
    int code = EXIT_OK;
    struct caller_tokens_edit *edit = start_on(flags, &entry, &code);
    if (!edit)
        return code;
    caller_tokens_edit_remove(edit, entry->id);
    code = save(flags, edit, &(struct token_change){flags->args[0], entry, NULL});
    if (code == EXIT_OK && isatty(STDERR_FILENO))
        fprintf(stderr, "Token %s of \"%s\" is not in %s any more.\n", entry->id, entry->subject, flags->file);
    caller_tokens_edit_free(edit);
    return code;
}

// ---- list -----------------------------------------------------------------------------------

// Without any part of the digest: the id identifies the token.
static json_t *entry_json(const struct caller_token *entry, const char *used, int64_t now)
{
    json_t *roles = json_array();
    for (const char *const *role = entry->roles; *role; role++)
        json_array_append_new(roles, json_string(*role));
    return json_pack("{s:s,s:s,s:o,s:s,s:s*,s:s*,s:s*,s:s*,s:b}", "id", entry->id, "subject", entry->subject, "roles",
                     roles, "tenant", tenant_of(entry), "created", entry->created, "expires", entry->expires,
                     "last_used", used, "description", entry->description, "active",
                     !caller_tokens_expired(entry, now));
}

static void add_row(struct table *table, const struct caller_token *entry, const char *used, int64_t now)
{
    struct buf who = {0}, when = {0}, what = {0};
    if (entry->tenant)
        buf_printf(&who, "%s/", entry->tenant);
    buf_put_text(&who, entry->subject);
    buf_printf(&when, "%s%s", entry->expires ? entry->expires : "never",
               caller_tokens_expired(entry, now) ? " (expired)" : "");
    for (const char *const *role = entry->roles; *role; role++)
        buf_printf(&what, "%s%s", what.len ? "," : "", *role);
    if (entry->description)
        buf_printf(&what, "%s%s", what.len ? "; " : "", entry->description);
    if (used)
        buf_printf(&what, "%slast used %.10s", what.len ? "; " : "", used);
    table_add(table, (const char *const[TABLE_COLUMNS]){entry->id, buf_text(&who), buf_text(&when), buf_text(&what)});
    buf_release(&who);
    buf_release(&when);
    buf_release(&what);
}

static int run_list(const struct flags *flags)
{
    static const char *const titles[TABLE_COLUMNS + 1] = {"ID", "SUBJECT", "EXPIRES", "ROLES; DESCRIPTION", NULL};
    struct err err = {0};
    int64_t now = clock_wall_s();
    struct caller_tokens *file = caller_tokens_load(flags->file, &err);
    if (!file)
        return fail_with_err(&err);
    struct table table = {.titles = titles};
    json_t *all = json_array(), *uses = token_audit_uses(flags);
    for (size_t i = 0; i < caller_tokens_count(file); i++) {
        const struct caller_token *entry = caller_tokens_at(file, i);
        const char *used = json_string_value(json_object_get(uses, entry->id));
        if (!is_shown(entry, flags))
            continue;
        json_array_append_new(all, entry_json(entry, used, now));
        add_row(&table, entry, used, now);
    }
    json_decref(uses);
    char *text = json_dumps(all, JSON_INDENT(2));
    if (output_wants_json(flags))
        puts(text);
    else
        table_print(&table);
    free(text);
    json_decref(all);
    table_release(&table);
    caller_tokens_free(file);
    return EXIT_OK;
}

// ---- the command ----------------------------------------------------------------------------

// The flags of each subcommand besides --file. A flag that would be ignored is an error, since it may be about roles.
static const struct token_subcommand {
    const char *name;
    int (*run)(const struct flags *flags);
    bool id, describes, expires, overlap;
} subcommands[] = {
    {"new", run_new, false, true, true, false},
    {"list", run_list, false, false, false, false},
    {"rotate", run_rotate, true, false, true, true},
    {"revoke", run_revoke, true, false, false, false},
};

static const char *unwanted(const struct token_subcommand *subcommand, const struct flags *flags)
{
    if (!subcommand->describes && flags->subject)
        return "subject";
    if (!subcommand->describes && flags->role[0])
        return "role";
    if (!subcommand->describes && flags->description)
        return "description";
    if (!subcommand->expires && flags->expires)
        return "expires";
    return !subcommand->overlap && flags->overlap ? "overlap" : NULL;
}

static int run(const struct flags *flags)
{
    const char *name = flags->args[0];
    const struct token_subcommand *subcommand = NULL;
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++)
        if (strcmp(subcommands[i].name, name) == 0)
            subcommand = &subcommands[i];
    if (!subcommand)
        return fail_with(EXIT_USAGE, "token %s: unknown subcommand; use new, list, rotate or revoke", name);
    if (unwanted(subcommand, flags))
        return fail_with(EXIT_USAGE, "token %s: does not accept --%s", name, unwanted(subcommand, flags));
    if (flags->count != (subcommand->id ? 2 : 1))
        return fail_with(EXIT_USAGE, "usage: postern token %s %s--file FILE", name, subcommand->id ? "ID " : "");
    if (!flags->file)
        return fail_with(EXIT_USAGE, "token %s: --file is missing; give the path of the tokens file", name);
    return subcommand->run(flags);
}

static const struct flag flags_table[] = {
    {"file", "FILE", FLAG(file), "The tokens file; 'new' creates it if it does not exist"},
    FLAG_CONFIG,
    {"subject", "NAME", FLAG(subject), "new: the subject whose calls the token authenticates"},
    {"role", "ROLE...", FLAG(role), "new: a role of the subject; can be repeated"},
    {"tenant", "NAME", FLAG(tenant),
     "new: the subject's tenant; default: \"default\"; list, rotate, revoke: only tokens of this tenant"},
    {"expires", "DATE|TIME", FLAG(expires),
     "new, rotate: when the token expires: 2027-01-31 (at the end of that day, UTC), an RFC 3339 time, or "
     "90d (from now)"},
    {"description", "TEXT", FLAG(description), "new: what the token is for"},
    {"overlap", "TIME", FLAG(overlap), "rotate: how long the old token stays valid; default: " DEFAULT_OVERLAP},
    FLAG_JSON,
    {0},
};

const struct command token_command = {
    .name = "token",
    .synopsis = "token new|list|rotate|revoke [ID] --file FILE",
    .summary = "Create, list, replace or revoke caller tokens",
    .details =
        "new     creates a token for --subject and prints it once; the file contains only its SHA-256 digest\n"
        "list    prints the tokens with their subjects, as a table or, in a pipe, as JSON; digests are not printed.\n"
        "        The time of the last use is taken from the audit log of the configuration\n"
        "rotate  creates a token with the subject, tenant, roles and description of the token ID; the old token\n"
        "        stays valid for --overlap\n"
        "revoke  removes the token ID from the file\n\n"
        "If the configuration has an audit log, each change is recorded there with the user who made it.\n\n"
        "A subject has at most two active tokens. ID is the id of a token, or the whole token. Exit status 1: the\n"
        "token does not exist, or the subject already has two active tokens.",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 2,
    .run = run,
};
