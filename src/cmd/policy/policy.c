// Owns `postern policy`: its flags, and fmt.
#include "cmd/policy/policy.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "subcommands.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- fmt ------------------------------------------------------------------------------------

static char *read_whole(const char *path)
{
    struct buf text = {0};
    char block[16384];
    size_t got;
    FILE *in = fopen(path, "re");
    while (in && (got = fread(block, 1, sizeof block, in)) > 0)
        buf_put(&text, block, got);
    if (in)
        fclose(in);
    return buf_take(&text, NULL);
}

// Writes a new file and renames it: a reader sees the old file or the new one.
static bool write_whole(const char *path, const char *text, struct err *err)
{
    struct stat info;
    struct buf beside = {0};
    size_t len = strlen(text);
    buf_printf(&beside, "%s.XXXXXX", path);
    int fd = mkostemp(buf_text(&beside), O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, len) == (ssize_t)len && stat(path, &info) == 0 &&
              fchmod(fd, info.st_mode & 0777) == 0 && fsync(fd) == 0 && rename(buf_text(&beside), path) == 0;
    if (!ok)
        (void)err_set(err, ERR_CONFIG, "%s: cannot be written: %s", path, strerror(errno));
    if (!ok && fd >= 0)
        unlink(buf_text(&beside));
    if (fd >= 0)
        close(fd);
    buf_release(&beside);
    return ok;
}

static int format_file(const char *path, bool only_check)
{
    struct err err = {0};
    char *wanted = policy_format(path, &err);
    if (!wanted)
        return fail_with_err(&err);
    char *text = read_whole(path);
    int code = EXIT_OK;
    if (strcmp(text ? text : "", wanted) != 0) {
        puts(path);
        if (only_check)
            code = EXIT_NEGATIVE;
        else if (!write_whole(path, wanted, &err))
            code = fail_with_err(&err);
    }
    free(text);
    free(wanted);
    return code;
}

static int is_policy_name(const struct dirent *entry)
{
    size_t len = strlen(entry->d_name);
    return entry->d_name[0] != '.' && len > 5 && strcmp(entry->d_name + len - 5, ".json") == 0;
}

static int format_path(const char *path, bool only_check)
{
    struct stat info;
    struct dirent **entries;
    if (stat(path, &info) < 0 || !S_ISDIR(info.st_mode))
        return format_file(path, only_check);
    int worst = EXIT_OK, count = scandir(path, &entries, is_policy_name, alphasort);
    for (int i = 0; i < count; i++) {
        struct buf full = {0};
        buf_printf(&full, "%s/%s", path, entries[i]->d_name);
        int code = format_file(buf_text(&full), only_check);
        worst = code > worst ? code : worst;
        buf_release(&full);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    if (count <= 0)
        return fail_with(EXIT_CONFIG, "%s: %s", path, count ? strerror(errno) : "the folder contains no *.json file");
    return worst;
}

static int fmt(const struct flags *flags)
{
    int worst = EXIT_OK;
    for (int i = 1; i < flags->count; i++) {
        int code = format_path(flags->args[i], flags->check);
        worst = code > worst ? code : worst;
    }
    return worst;
}

// ---- the command ----------------------------------------------------------------------------

// A flag that would be ignored is an error.
enum {
    TAKES_CONFIG = 1,
    TAKES_POLICY = 2,
    TAKES_THING = 4,
    TAKES_WHO = 8,
    TAKES_CHECK = 16,
    TAKES_FAIL = 32,
    TAKES_JSON = 64,
    TAKES_TENANT = 128,
    TAKES_SHOW = 256,
    TAKES_INVENTORY = 512,
    TAKES_AUDIT = 1024,
    TAKES_BEFORE = 2048,
    TAKES_OFFLINE = 4096,
};

static const struct policy_subcommand {
    const char *name, *usage;
    int (*run)(const struct flags *flags);
    int min, max;  // arguments after the name
    unsigned takes;
} subcommands[] = {
    {"check",
     "check PATH [--config FILE [--offline]] [--inventory FILE [--inventory-before FILE|REVISION:FILE]] [--json]",
     policy_check, 1, 1, TAKES_CONFIG | TAKES_OFFLINE | TAKES_INVENTORY | TAKES_BEFORE | TAKES_JSON},
    {"explain",
     "explain --policy PATH --subject PROVIDER:NAME|anonymous [--tenant T] [--role R]... --server NAME "
     "--tool|--resource|--template|--prompt NAME [--args JSON] [--show-args] [--json]",
     policy_explain, 0, 0, TAKES_POLICY | TAKES_THING | TAKES_WHO | TAKES_TENANT | TAKES_SHOW | TAKES_JSON},
    {"fmt", "fmt [--check] PATH...", fmt, 1, 7, TAKES_CHECK},
    {"who-can",
     "who-can --policy PATH [--tenant T] --server NAME --tool|--resource|--template|--prompt NAME [--args JSON] "
     "[--json]",
     policy_explain_who_can, 0, 0, TAKES_POLICY | TAKES_THING | TAKES_TENANT | TAKES_JSON},
    {"diff", "diff OLD NEW [--inventory FILE] [--fail-on-new-access] [--json]", policy_diff, 2, 2,
     TAKES_INVENTORY | TAKES_FAIL | TAKES_JSON},
    {"replay", "replay --policy PATH [--file AUDIT | --config FILE] [--since TIME] [--tenant T] [--json]",
     policy_replay, 0, 0, TAKES_POLICY | TAKES_AUDIT | TAKES_CONFIG | TAKES_TENANT | TAKES_JSON},
    {"coverage", "coverage PATH [--json]", policy_check_coverage, 1, 1, TAKES_JSON},
};

static const char *unwanted(unsigned takes, const struct flags *flags)
{
    bool thing = flags->server || flags->tool || flags->resource || flags->template || flags->prompt;
    const struct {
        bool given;
        unsigned needs;
        const char *name;
    } all[] = {
        {flags->config != NULL, TAKES_CONFIG, "config"},
        {flags->offline, TAKES_OFFLINE, "offline"},
        {flags->policy != NULL, TAKES_POLICY, "policy"},
        {thing, TAKES_THING, "server, --tool, --resource, --template or --prompt"},
        {flags->arguments != NULL, TAKES_THING, "args"},
        {flags->subject != NULL, TAKES_WHO, "subject"},
        {flags->role[0] != NULL, TAKES_WHO, "role"},
        {flags->tenant != NULL, TAKES_TENANT, "tenant"},
        {flags->show_args, TAKES_SHOW, "show-args"},
        {flags->inventory != NULL, TAKES_INVENTORY, "inventory"},
        {flags->inventory_before != NULL, TAKES_BEFORE, "inventory-before"},
        {flags->file != NULL, TAKES_AUDIT, "file"},
        {flags->since != NULL, TAKES_AUDIT, "since"},
        {flags->check, TAKES_CHECK, "check"},
        {flags->fail_on_new_access, TAKES_FAIL, "fail-on-new-access"},
        {flags->json, TAKES_JSON, "json"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given && !(takes & all[i].needs))
            return all[i].name;
    return NULL;
}

static int run(const struct flags *flags)
{
    const char *name = flags->args[0];
    const struct policy_subcommand *subcommand = NULL;
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++)
        if (strcmp(subcommands[i].name, name) == 0)
            subcommand = &subcommands[i];
    if (!subcommand)
        return fail_with(
            EXIT_USAGE,
            "policy %s: unknown subcommand; use one of check, explain, fmt, who-can, diff, replay, coverage", name);
    if (unwanted(subcommand->takes, flags))
        return fail_with(EXIT_USAGE, "policy %s: does not accept --%s", name, unwanted(subcommand->takes, flags));
    if (flags->count - 1 < subcommand->min || flags->count - 1 > subcommand->max)
        return fail_with(EXIT_USAGE, "usage: postern policy %s", subcommand->usage);
    if ((subcommand->takes & TAKES_POLICY) && !flags->policy)
        return fail_with(EXIT_USAGE, "policy %s: --policy is missing; give the path of the policy file or folder",
                         name);
    return subcommand->run(flags);
}

static const struct flag flags_table[] = {
    {"policy", "PATH", FLAG(policy), "explain, who-can, replay: the policy file, or a folder of *.json"},
    {"config", "FILE", FLAG(config),
     "check: a configuration whose servers, tenants and providers the rules must name; replay: its audit log"},
    FLAG_OFFLINE,
    {"inventory", "FILE", FLAG(inventory),
     "check, diff: the items of the servers, as printed by postern tools, resources and prompts"},
    {"inventory-before", "FILE", FLAG(inventory_before), "check: an earlier inventory; a path, or REVISION:PATH"},
    {"tenant", "NAME", FLAG(tenant),
     "explain, who-can: the caller's tenant; default: \"default\"; replay: only calls of this tenant"},
    {"subject", "SUBJECT", FLAG(subject), "explain: the caller, as PROVIDER:NAME or anonymous"},
    {"role", "ROLE...", FLAG(role), "explain: a role of the caller; can be repeated"},
    {"server", "NAME", FLAG(server), "explain, who-can: the server's name in the configuration"},
    {"tool", "NAME", FLAG(tool), "explain, who-can: the tool, by the server's own name"},
    {"resource", "URI", FLAG(resource), "explain, who-can: the resource"},
    {"template", "URI", FLAG(template), "explain, who-can: the resource template"},
    {"prompt", "NAME", FLAG(prompt), "explain, who-can: the prompt"},
    {"args", "JSON", FLAG(arguments), "explain, who-can: the arguments, as a JSON object"},
    {"show-args", NULL, FLAG(show_args), "explain: print the values of the arguments"},
    {"file", "AUDIT", FLAG(file),
     "replay: the audit database, or its JSON lines; default: the database in the configuration"},
    {"since", "TIME", FLAG(since),
     "replay: rows since this time: 1h (ago), 2027-01-31 or 2027-01-31T12:00:00Z, in UTC"},
    {"check", NULL, FLAG(check), "fmt: list the files that would change, and do not write them"},
    {"fail-on-new-access", NULL, FLAG(fail_on_new_access),
     "diff: exit status 1 if NEW allows an access that OLD does not"},
    {"json", NULL, FLAG(json), "Print JSON"},
    {0},
};

const struct command policy_command = {
    .name = "policy",
    .synopsis = "policy check|explain|fmt|who-can|diff|replay|coverage [PATH...]",
    .summary = "Check, explain, format or compare policies",
    .details =
        "check PATH     reports errors and warnings, and runs the tests in the files; exit status 1 for errors\n"
        "explain        shows which rule decides a call, and why each other rule does not; exit status 1 if denied\n"
        "fmt PATH...    rewrites files in the standard format; with --check, exit status 1 if a file would change\n"
        "who-can        lists every subject in the policy with its verdict\n"
        "diff OLD NEW   lists the accesses that NEW allows and OLD does not, and the reverse;\n"
        "               each is a path, or REVISION:PATH in the surrounding git repository\n"
        "replay         decides the calls in the audit log again, under another policy, and lists each changed\n"
        "               verdict; exit status 1: a verdict changed\n"
        "coverage PATH  lists the rules that no test exercises; exit status 1: at least one\n\n"
        "docs/policy.md describes policies and these subcommands.",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 8,
    .run = run,
};
