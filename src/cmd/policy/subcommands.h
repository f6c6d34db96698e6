// Shared by the subcommands of `postern policy`.
#ifndef POLICY_SUBCOMMANDS_H
#define POLICY_SUBCOMMANDS_H

#include "auth/policy/policy.h"
#include "cmd/base/options.h"
#include <stdio.h>

// An item that a caller may have access to.
struct policy_item {
    char *server, *name;
    enum policy_kind kind;
};

// A caller that is tried.
struct policy_asker {
    char *label;
    struct identity *identity;
};

struct policy_askers {
    struct policy_asker *at;
    size_t count;
};

// The extent of a caller's access to an item: with no, with some or with all arguments.
enum policy_extent { EXTENT_NONE, EXTENT_SOME, EXTENT_ALL };

int policy_check(const struct flags *flags);
int policy_check_coverage(const struct flags *flags);
int policy_explain(const struct flags *flags);
int policy_explain_who_can(const struct flags *flags);
int policy_diff(const struct flags *flags);
int policy_replay(const struct flags *flags);

// Loads a policy that the user calls `name`. NULL: the findings were printed and the exit code set.
struct policy *policy_open(const char *path, const char *name, int *exit_code);
void policy_open_print_finding(FILE *out, const struct policy_finding *finding);

// Adds the callers that the policy, the other (if not NULL) and their tests name, in every tenant that they name or in
// `tenant` only. Each tenant also gets an anonymous caller and one without a name or role.
void policy_askers_add(struct policy_askers *askers, struct policy *policy, struct policy *other, const char *tenant);
bool policy_askers_has(const struct policy_askers *askers, const char *label, const char *tenant);
void policy_askers_release(struct policy_askers *askers);
bool policy_askers_is_unnamed(const struct policy_asker *asker);  // authenticated in the tenant, without a name or role
// Makes the caller with both principals. False: they exclude each other, or one is not a single user or role.
bool policy_askers_join(const struct policy_asker *a, const struct policy_asker *b, struct policy_asker *out);
void policy_askers_release_one(struct policy_asker *asker);
// Returns the extent; the conditions that it depends on, if any, go to `conditions`.
enum policy_extent policy_askers_extent(struct policy_memo *memo, const struct policy_question *question,
                                        struct buf *conditions);

// Reads a path, or REVISION:PATH of a file in the surrounding git repository. NULL: error printed, exit code set.
struct policy_inventory *policy_open_inventory(const char *path, int *exit_code);

// Copies a folder or file at a revision, "REV:PATH", to a new folder. NULL: error printed, exit code set.
char *policy_checkout(const char *revision, int *exit_code);
void policy_checkout_remove(const char *folder);

#endif
