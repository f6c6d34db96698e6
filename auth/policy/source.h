// Policy files as parsed, before they are compiled.
#ifndef AUTH_POLICY_SOURCE_H
#define AUTH_POLICY_SOURCE_H

#include "auth/policy/policy.h"
#include "base/option.h"

struct policy_group {
    char *name, *description;
    char **members;
};

struct policy_set {
    char *name, *description;
    char **names;
};

struct policy_file {
    char *path;
    char *text;  // for line numbers
    json_t *tree;
    int64_t version;
    char *description;
    char **tenants;
    struct {
        char **tenants, **servers;
    } scope;
    struct option_items groups, sets, rules, tests;
};

struct policy_source {
    struct policy_file *files;
    size_t count;
};

extern const struct option_table policy_source_options;
extern const char *const policy_kind_words[];  // kind.c; NULL at the end

// Reads the file or folder. Unreadable files, syntax errors and schema errors are findings (E1, E2, E7). False: the file
// or folder does not exist.
bool policy_source_read(const char *path, struct policy_source *out, struct policy_findings *findings,
                        struct err *err) MUST_CHECK;
void policy_source_release(struct policy_source *source);
const struct policy_group *policy_source_group(const struct policy_source *source, const char *name);
const struct policy_set *policy_source_set(const struct policy_source *source, const char *name);
char **policy_source_principals(const struct policy_source *source);

// policy.c: the conditions of the allow rules in force that match the question apart from their conditions. 0 if no rule
// matches, if one of them has no condition, or if there are more than `max`.
size_t policy_conditions(struct policy_memo *memo, const struct policy_question *question, const json_t **out,
                         size_t max);

// format.c: the formatted text. Sorts the unordered lists of `tree` in place.
char *policy_format_tree(json_t *tree);

// place.c: sets the line of one id (0: not found), and of all rules.
int policy_place_id(const struct policy_file *file, const char *id);
void policy_place_ids(struct policy_file *file);
const char *policy_place_rule(const struct policy_file *file, const char *pointer);  // id of the rule it leads into
void policy_place_put(struct buf *pointer, const char *key);                         // appends a key to the pointer
// Sets the line and the rule id of findings that begin with a JSON Pointer and do not have a line yet.
void policy_place_findings(const struct policy_source *source, struct policy_findings *findings);

// lint.c: all checks of the parsed files that do not need a decision.
void policy_lint(const struct policy_source *source, const struct policy_load *load, struct policy_findings *findings);
void policy_overlap_lint(const struct policy_source *source, struct policy_findings *findings);  // W1 and W2; no errors
// inventory.c: the checks that need the configuration or the inventory. Call after policy_lint() found no errors.
void policy_inventory_lint(const struct policy_source *source, const struct policy_load *load,
                           struct policy_findings *findings);

__attribute__((format(printf, 6, 7))) void policy_findings_add(struct policy_findings *findings, const char *code,
                                                               const char *file, int line, const char *rule,
                                                               const char *format, ...);

#endif
