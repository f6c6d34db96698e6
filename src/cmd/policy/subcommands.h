// What the subcommands of `postern policy` share.
#ifndef POLICY_SUBCOMMANDS_H
#define POLICY_SUBCOMMANDS_H

#include "auth/policy/policy.h"
#include "cmd/base/options.h"
#include <stdio.h>

// A thing that is asked for.
struct policy_item {
    char *server, *name;
    enum policy_kind kind;
};

// Somebody who asks.
struct policy_asker {
    char *label;
    struct identity *identity;
};

struct policy_askers {
    struct policy_asker *at;
    size_t count;
};

// How much somebody may do with a thing, whatever the arguments.
enum policy_extent { EXTENT_NONE, EXTENT_SOME, EXTENT_ALL };

int policy_check(const struct flags *flags);
int policy_check_coverage(const struct flags *flags);
int policy_explain(const struct flags *flags);
int policy_explain_who_can(const struct flags *flags);
int policy_diff(const struct flags *flags);
int policy_replay(const struct flags *flags);

// Loads what the user calls `name`. NULL: what is wrong went to stderr, exit code set.
struct policy *policy_open(const char *path, const char *name, int *exit_code);
void policy_open_print_finding(FILE *out, const struct policy_finding *finding);

// Those the policy (and the other, if not NULL) and their tests name, in every tenant that they name or in this one
// only, and a stranger of each sort.
void policy_askers_add(struct policy_askers *askers, struct policy *policy, struct policy *other, const char *tenant);
bool policy_askers_has(const struct policy_askers *askers, const char *label, const char *tenant);
void policy_askers_release(struct policy_askers *askers);
bool policy_askers_is_stranger(const struct policy_asker *asker);  // of the tenant, and nothing else is known
// Somebody who is both. False: nobody can be, or one is not just a user or a role.
bool policy_askers_join(const struct policy_asker *a, const struct policy_asker *b, struct policy_asker *out);
void policy_askers_release_one(struct policy_asker *asker);
// With some arguments, with all, or not at all. What it depends on, if anything, goes to `conditions`.
enum policy_extent policy_askers_extent(struct policy_memo *memo, const struct policy_question *question,
                                        struct buf *conditions);

// A path, or REVISION:PATH of a file in the git repository around. NULL: said, exit code set.
struct policy_inventory *policy_open_inventory(const char *path, int *exit_code);

// A folder or file at a revision, "REV:PATH", copied to a new folder. NULL: said, exit code set.
char *policy_checkout(const char *revision, int *exit_code);
void policy_checkout_remove(const char *folder);

#endif
