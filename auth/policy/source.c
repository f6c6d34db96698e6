// Owns reading policy files: the option rows of every object in them, and folders.
#include "source.h"
#include "base/map.h"
#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX ((size_t)4 << 20)
#define FILES_MAX 1000

static const char *const effects[] = {"deny", "allow", NULL};
static const char *const modes[] = {"enforce", "shadow", NULL};

#define AT(member) offsetof(struct policy_rule, member)
static const struct option rule_rows[] = {
    {.name = "id", .type = OPTION_STRING, .offset = AT(id), .help = "Unique name of the rule."},
    {.name = "effect",
     .type = OPTION_ENUM,
     .offset = AT(effect),
     .choices = effects,
     .help = "The effect of the rule."},
    {.name = "description", .type = OPTION_STRING, .offset = AT(description), .help = "The reason for the rule."},
    {.name = "owner",
     .type = OPTION_STRING,
     .offset = AT(owner),
     .help = "The person or team responsible for the rule."},
    {.name = "ticket", .type = OPTION_STRING, .offset = AT(ticket), .help = "The ticket of the decision."},
    {.name = "notes", .type = OPTION_STRINGS, .offset = AT(notes), .help = "More notes for reviewers."},
    {.name = "mode",
     .type = OPTION_ENUM,
     .offset = AT(mode),
     .choices = modes,
     .help = "`shadow`: logged, but never decides."},
    {.name = "expires", .type = OPTION_STRING, .offset = AT(expires), .help = "Last day of an allow rule, YYYY-MM-DD."},
    {.name = "acknowledge",
     .type = OPTION_STRING,
     .offset = AT(acknowledge),
     .help = "`open`: an allow rule for all callers and names is intended."},
    {.name = "tenants", .type = OPTION_STRINGS, .offset = AT(tenants), .help = "The tenants that the rule applies to."},
    {.name = "subjects",
     .type = OPTION_STRINGS,
     .offset = AT(subjects),
     .help = "The subjects that the rule applies to."},
    {.name = "servers", .type = OPTION_STRINGS, .offset = AT(servers), .help = "The servers that the rule applies to."},
    {.name = "kinds",
     .type = OPTION_STRINGS,
     .offset = AT(kinds),
     .help = "The kinds of items that the rule applies to."},
    {.name = "names", .type = OPTION_STRINGS, .offset = AT(names), .help = "The names that the rule applies to."},
    {.name = "when", .type = OPTION_JSON, .offset = AT(when), .help = "Conditions on the arguments."},
    {0},
};
#undef AT

#define AT(member) offsetof(struct policy_group, member)
static const struct option group_rows[] = {
    {.name = "description", .type = OPTION_STRING, .offset = AT(description), .help = "The purpose of the group."},
    {.name = "members", .type = OPTION_STRINGS, .offset = AT(members), .help = "Users, roles and groups."},
    {0},
};
#undef AT

#define AT(member) offsetof(struct policy_set, member)
static const struct option set_rows[] = {
    {.name = "description", .type = OPTION_STRING, .offset = AT(description), .help = "The purpose of the set."},
    {.name = "names", .type = OPTION_STRINGS, .offset = AT(names), .help = "Names and patterns."},
    {0},
};
#undef AT

#define AT(member) (offsetof(struct policy_test, member) - offsetof(struct policy_test, as))
static const struct option as_rows[] = {
    {.name = "tenant", .type = OPTION_STRING, .offset = AT(as.tenant), .help = "The caller's tenant."},
    {.name = "subject", .type = OPTION_STRING, .offset = AT(as.subject), .help = "PROVIDER:NAME, or anonymous."},
    {.name = "roles", .type = OPTION_STRINGS, .offset = AT(as.roles), .help = "The caller's roles."},
    {0},
};
#undef AT
static const struct option_table as_options = {"The caller of a test", sizeof(((struct policy_test *)0)->as), as_rows,
                                               NULL};

#define AT(member) offsetof(struct policy_test, member)
static const struct option test_rows[] = {
    {.name = "description",
     .type = OPTION_STRING,
     .offset = AT(description),
     .help = "The decision that the test states."},
    {.name = "as", .type = OPTION_OBJECT, .offset = AT(as), .sub = &as_options, .help = "The caller."},
    {.name = "server", .type = OPTION_STRING, .offset = AT(server), .help = "The server."},
    {.name = "kind",
     .type = OPTION_ENUM,
     .offset = AT(kind),
     .choices = policy_kind_words,
     .help = "The kind of the item."},
    {.name = "name", .type = OPTION_STRING, .offset = AT(name), .help = "The name of the item."},
    {.name = "args", .type = OPTION_JSON, .offset = AT(args), .help = "The arguments."},
    {.name = "expect", .type = OPTION_ENUM, .offset = AT(expect), .choices = effects, .help = "The verdict."},
    {.name = "by", .type = OPTION_STRING, .offset = AT(by), .help = "The rule that must decide."},
    {0},
};
#undef AT

#define AT(member) (offsetof(struct policy_file, member) - offsetof(struct policy_file, scope))
static const struct option scope_rows[] = {
    {.name = "tenants",
     .type = OPTION_STRINGS,
     .offset = AT(scope.tenants),
     .help = "Rules of the file are limited to these tenants."},
    {.name = "servers",
     .type = OPTION_STRINGS,
     .offset = AT(scope.servers),
     .help = "Rules of the file are limited to these servers."},
    {0},
};
#undef AT

static const struct option_table rule_options = {"A rule", sizeof(struct policy_rule), rule_rows, NULL};
static const struct option_table group_options = {"A group", sizeof(struct policy_group), group_rows, NULL};
static const struct option_table set_options = {"A set", sizeof(struct policy_set), set_rows, NULL};
static const struct option_table test_options = {"A test", sizeof(struct policy_test), test_rows, NULL};
static const struct option_table scope_options = {"A scope", sizeof(((struct policy_file *)0)->scope), scope_rows,
                                                  NULL};

#define AT(member) offsetof(struct policy_file, member)
static const struct option file_rows[] = {
    {.name = "version",
     .type = OPTION_INT,
     .offset = AT(version),
     .min = 1,
     .max = 1,
     .help = "The version of the format: 1."},
    {.name = "description", .type = OPTION_STRING, .offset = AT(description), .help = "The purpose of the file."},
    {.name = "tenants",
     .type = OPTION_STRINGS,
     .offset = AT(tenants),
     .help = "The tenants of rules without `tenants`."},
    {.name = "scope",
     .type = OPTION_OBJECT,
     .offset = AT(scope),
     .sub = &scope_options,
     .help = "Limits the rules of the file to tenants and servers."},
    {.name = "groups", .type = OPTION_NAMED_OBJECTS, .offset = AT(groups), .sub = &group_options, .help = "Groups."},
    {.name = "sets", .type = OPTION_NAMED_OBJECTS, .offset = AT(sets), .sub = &set_options, .help = "Sets of names."},
    {.name = "rules", .type = OPTION_OBJECTS, .offset = AT(rules), .sub = &rule_options, .help = "The rules."},
    {.name = "tests", .type = OPTION_OBJECTS, .offset = AT(tests), .sub = &test_options, .help = "The tests."},
    {0},
};
#undef AT

const struct option_table policy_source_options = {"A policy file", sizeof(struct policy_file), file_rows, NULL};

// ---- files ----------------------------------------------------------------------------------

static void find_unread(struct policy_findings *findings, const char *path)
{
    findings->unread = true;
    policy_findings_add(findings, "E7", path, 0, NULL, "cannot be read: %s", strerror(errno));
}

// NULL if the file cannot be read, which is a finding.
static char *read_text(const char *path, size_t *len, struct policy_findings *findings)
{
    struct buf text = {.max = FILE_MAX};
    char block[65536];
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !text.overflow && (got = read(fd, block, sizeof block)) > 0)
        buf_put(&text, block, (size_t)got);
    if (got < 0)
        find_unread(findings, path);
    else if (text.overflow)
        policy_findings_add(findings, "E7", path, 0, NULL,
                            "larger than %zu bytes; split it into several files in one folder", FILE_MAX);
    if (fd >= 0)
        close(fd);
    if (got < 0 || text.overflow) {
        buf_release(&text);
        return NULL;
    }
    return buf_take(&text, len);
}

// The text after "PATH:LINE:COLUMN: " or "PATH: "; a finding has the place in its own members.
static const char *after_place(const char *text, const char *path, int *line)
{
    size_t len = strlen(path);
    if (strncmp(text, path, len) != 0 || text[len] != ':')
        return text;
    text += len + 1;
    if (*text >= '0' && *text <= '9') {
        char *end;
        *line = (int)strtol(text, &end, 10);
        text = end + strspn(end, ":0123456789");
    }
    return text + strspn(text, " ");
}

static void read_file(struct policy_source *source, const char *path, struct policy_findings *findings)
{
    size_t len;
    struct err problem = {0};
    char *text = read_text(path, &len, findings);
    if (!text)
        return;
    source->files = mem_resize(source->files, (source->count + 1) * sizeof *source->files);
    struct policy_file *file = &source->files[source->count++];
    *file = (struct policy_file){.path = mem_string(path), .text = text};
    file->tree = json_parse(span_make(text, len), path, &problem);
    if (!file->tree) {
        bool twice = strstr(problem.detail, "duplicate") != NULL;
        int line = 0;
        const char *said = after_place(problem.detail, path, &line);
        policy_findings_add(findings, twice ? "E2" : "E7", path, line, NULL, "%s", said);
        return;
    }
    struct option_place place = {.file = path, .path = "", .literal = true};
    if (json_object_get(file->tree, "mcpServers")) {
        policy_findings_add(findings, "E1", path, 0, NULL,
                            "is a configuration, not a policy; move it out of the policy folder");
    } else if (!option_parse(&policy_source_options, file->tree, file, &place, &problem)) {
        const char *said = after_place(problem.detail, path, &(int){0}), *id = policy_place_rule(file, said);
        policy_findings_add(findings, strstr(said, "unknown key") ? "E1" : "E7", path, policy_place_id(file, id), id,
                            "%s", said);
    } else if (file->version != 1)
        policy_findings_add(findings, "E7", path, 0, NULL, "/version: must be 1");
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void read_folder(struct policy_source *source, const char *path, struct policy_findings *findings)
{
    char **names = NULL;
    size_t count = 0;
    DIR *folder = opendir(path);
    if (!folder) {
        find_unread(findings, path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder)) && count <= FILES_MAX;) {
        size_t len = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || len < 6 || strcmp(entry->d_name + len - 5, ".json") != 0)
            continue;
        names = mem_resize(names, (count + 1) * sizeof *names);
        names[count++] = mem_string(entry->d_name);
    }
    closedir(folder);
    if (!count)
        policy_findings_add(findings, "E7", path, 0, NULL,
                            "the folder contains no *.json file; name the folder of the policy files");
    if (count > FILES_MAX)  // not truncated: the rest could contain a deny
        policy_findings_add(findings, "E7", path, 0, NULL, "more than %d files; merge some of them", FILES_MAX);
    if (count)
        qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        struct buf full = {0};
        buf_printf(&full, "%s/%s", path, names[i]);
        if (count <= FILES_MAX)
            read_file(source, buf_text(&full), findings);
        buf_release(&full);
        free(names[i]);
    }
    free(names);
}

bool policy_source_read(const char *path, struct policy_source *out, struct policy_findings *findings, struct err *err)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return err_set(err, ERR_CONFIG, "policy %s: %s; name a file or folder that the gateway's user can read", path,
                       strerror(errno));
    if (S_ISDIR(info.st_mode))
        read_folder(out, path, findings);
    else
        read_file(out, path, findings);
    return true;
}

void policy_source_release(struct policy_source *source)
{
    for (size_t i = 0; i < source->count; i++) {
        struct policy_file *file = &source->files[i];
        option_release(&policy_source_options, file);
        json_decref(file->tree);
        free(file->path);
        free(file->text);
    }
    free(source->files);
    *source = (struct policy_source){0};
}

const struct policy_group *policy_source_group(const struct policy_source *source, const char *name)
{
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_group *groups = source->files[i].groups.at;
        for (size_t k = 0; k < source->files[i].groups.count; k++)
            if (strcmp(groups[k].name, name) == 0)
                return &groups[k];
    }
    return NULL;
}

const struct policy_set *policy_source_set(const struct policy_source *source, const char *name)
{
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_set *sets = source->files[i].sets.at;
        for (size_t k = 0; k < source->files[i].sets.count; k++)
            if (strcmp(sets[k].name, name) == 0)
                return &sets[k];
    }
    return NULL;
}

// ---- principals -----------------------------------------------------------------------------

static void add_principals(struct map *seen, char *const *subjects)
{
    for (; subjects && *subjects; subjects++)
        if (strncmp(*subjects, "user:", 5) == 0 || strncmp(*subjects, "role:", 5) == 0)
            map_put(seen, span_of(*subjects), *subjects);
}

char **policy_source_principals(const struct policy_source *source)
{
    struct map seen = {0};
    size_t count = 0;
    void *value;
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_rule *rules = source->files[i].rules.at;
        const struct policy_group *groups = source->files[i].groups.at;
        for (size_t k = 0; k < source->files[i].rules.count; k++)
            add_principals(&seen, rules[k].subjects);
        for (size_t k = 0; k < source->files[i].groups.count; k++)
            add_principals(&seen, groups[k].members);
    }
    char **all = mem_alloc((seen.count + 1) * sizeof *all);
    for (size_t at = 0; map_next(&seen, &at, NULL, &value);)
        all[count++] = mem_string(value);
    qsort(all, count, sizeof *all, by_name);
    map_release(&seen);
    return all;
}
