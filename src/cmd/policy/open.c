// Owns reading the policy or inventory that the user names, and printing findings about it.
#include "base/clock.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "subcommands.h"
#include <stdio.h>
#include <stdlib.h>

void policy_open_print_finding(FILE *out, const struct policy_finding *finding)
{
    fputs(finding->file, out);
    if (finding->line)
        fprintf(out, ":%d", finding->line);
    fprintf(out, ": %s %s%s%s\n", finding->code, finding->rule ? finding->rule : "", finding->rule ? ": " : "",
            finding->text);
}

// Files of a copy are shown with their origin: HEAD:policy/a.json.
static void print_finding_of_copy(struct policy_finding finding, const char *path, const char *name)
{
    const char *rest = finding.file + strlen(path);
    size_t len = strlen(name), more = strlen(rest);
    struct buf file = {0};
    buf_put_text(&file, name);
    if (len < more || strcmp(name + len - more, rest) != 0)  // the name does not end in the name of the file
        buf_put_text(&file, rest);
    finding.file = buf_text(&file);
    policy_open_print_finding(stderr, &finding);
    buf_release(&file);
}

struct policy *policy_open(const char *path, const char *name, int *exit_code)
{
    struct err err = {0};
    struct policy_findings findings = {0};
    struct policy_load load = {.path = path, .now = clock_wall_s()};
    struct policy *policy = policy_load(&load, &findings, &err);
    for (size_t i = 0; !policy && i < findings.count; i++)
        if (findings.at[i].code[0] == 'E')
            print_finding_of_copy(findings.at[i], path, name);
    if (!policy && findings.errors)
        *exit_code = fail_with(EXIT_CONFIG, "%s: %zu error%s, not loaded", name, findings.errors,
                               findings.errors == 1 ? "" : "s");
    else if (!policy)
        *exit_code = fail_with(EXIT_CONFIG, "%s", err.detail);
    policy_findings_release(&findings);
    return policy;
}

struct policy_inventory *policy_open_inventory(const char *path, int *exit_code)
{
    struct err err = {0};
    char *folder = strchr(path, ':') ? policy_checkout(path, exit_code) : NULL;
    struct buf file = {0};
    if (strchr(path, ':') && !folder)
        return NULL;
    const char *slash = strrchr(path, '/'), *colon = strchr(path, ':');
    if (folder)
        buf_printf(&file, "%s/%s", folder, slash ? slash + 1 : colon + 1);
    struct policy_inventory *inventory = policy_inventory_read(folder ? buf_text(&file) : path, &err);
    if (!inventory)
        *exit_code = fail_with_err(&err);
    if (folder)
        policy_checkout_remove(folder);
    free(folder);
    buf_release(&file);
    return inventory;
}
