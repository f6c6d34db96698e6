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

// Reads the file or folder; what cannot be read and syntax and schema errors are findings (E1, E2, E7). False: there is
// no such thing.
bool policy_source_read(const char *path, struct policy_source *out, struct policy_findings *findings,
                        struct err *err) MUST_CHECK;
void policy_source_release(struct policy_source *source);
const struct policy_group *policy_source_group(const struct policy_source *source, const char *name);
const struct policy_set *policy_source_set(const struct policy_source *source, const char *name);
char **policy_source_principals(const struct policy_source *source);

// policy.c: the conditions of the live allow rules that take the question apart from those. 0: there is no such rule, one
// of them has no condition, or there are more than `max`.
size_t policy_conditions(struct policy_memo *memo, const struct policy_question *question, const json_t **out,
                         size_t max);

// format.c: the one way it is written. Sorts what has no order in the tree itself.
char *policy_format_tree(json_t *tree);

// place.c: the line of a rule's id, 0 if it is not there, and of all rules.
int policy_place_id(const struct policy_file *file, const char *id);
void policy_place_ids(struct policy_file *file);
const char *policy_place_rule(const struct policy_file *file, const char *pointer);  // id of the rule it leads into
void policy_place_put(struct buf *pointer, const char *key);                         // one step more
// Findings that begin with a JSON Pointer and have no line yet get it, and the id of the rule there.
void policy_place_findings(const struct policy_source *source, struct policy_findings *findings);

// lint.c: everything about the parsed files that can be wrong without a decision being made.
void policy_lint(const struct policy_source *source, const struct policy_load *load, struct policy_findings *findings);
void policy_overlap_lint(const struct policy_source *source, struct policy_findings *findings);  // W1 and W2; no errors
// inventory.c: what only the configuration and the inventory can tell. After policy_lint(), without errors.
void policy_inventory_lint(const struct policy_source *source, const struct policy_load *load,
                           struct policy_findings *findings);

__attribute__((format(printf, 6, 7))) void policy_findings_add(struct policy_findings *findings, const char *code,
                                                               const char *file, int line, const char *rule,
                                                               const char *format, ...);

#endif
