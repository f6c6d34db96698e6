// Decides whether an identity may do something: policy files, compiled, and asked before a server receives anything.
//
// A matching deny rule denies; otherwise a matching allow rule allows; otherwise the decision is deny. The order of rules
// does not matter. A policy is an immutable, counted snapshot; zeroed memory denies. Questions go through a memo, which
// belongs to one thread: several threads may use the same policy, each through a memo of its own.
#ifndef AUTH_POLICY_H
#define AUTH_POLICY_H

#include "auth/caller/identity.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/span.h"

enum verdict { VERDICT_DENY, VERDICT_ALLOW };
enum policy_kind { POLICY_TOOL, POLICY_RESOURCE, POLICY_TEMPLATE, POLICY_PROMPT, POLICY_KINDS };

struct policy;
struct policy_memo;
struct policy_inventory;

// A rule as written in its file. `effect` and `mode` are indexes of {deny, allow} and {enforce, shadow}.
struct policy_rule {
    char *id, *description;
    int effect, mode;
    char **tenants, **subjects, **servers, **kinds, **names;
    json_t *when;
    char *expires, *acknowledge, *owner, *ticket;
    char **notes;
    const char *file;  // where the rule is
    int line;
    size_t at;           // in the list of the file's rules
    int64_t expires_at;  // seconds since the epoch; 0: never
};

struct policy_question {
    const struct identity *identity;
    const char *server;  // the name in the configuration
    enum policy_kind kind;
    struct span name;    // the server's own name or URI of the item
    const json_t *args;  // the arguments, or NULL: none
};

struct policy_decision {
    enum verdict verdict;
    const struct policy_rule *rule;  // NULL: no rule decided
    const char *by;                  // its id, or "default", "uri_not_canonical", "builtin:allow-all"
};

// A test embedded in a file.
struct policy_test {
    char *description;
    struct {
        char *tenant, *subject;
        char **roles;
    } as;
    char *server, *name;
    int kind;
    json_t *args;
    int expect;  // {deny, allow}
    char *by;
    const char *file;
    size_t at;  // in the list of the file's tests
};

// A finding of `policy check`: an error (E…) keeps the policy from loading, a warning (W…) does not.
struct policy_finding {
    char code[4];
    char *file;
    int line;    // 0: unknown
    char *rule;  // id, or NULL
    char *text;  // mostly "POINTER: the problem; what to do"
};

struct policy_findings {
    struct policy_finding *at;
    size_t count, errors;
    bool unread;  // a file or the folder could not be read
};

struct policy_load {
    const char *path;            // a file, or a folder of *.json
    int64_t now;                 // seconds since the epoch; decides which rules have expired
    const char *const *servers;  // known names, NULL at the end; NULL: not checked
    const char *const *tenants;
    const char *const *providers;              // known provider names, for user:PROVIDER:NAME
    const struct policy_inventory *inventory;  // the items of the servers; NULL: not checked
    const struct policy_inventory *before;     // an earlier inventory: patterns that match more now are findings
};

// The JSON that `postern tools`, `resources` and `prompts` print, one after another in a file.
struct policy_inventory *policy_inventory_read(const char *path, struct err *err) MUST_CHECK;
void policy_inventory_free(struct policy_inventory *inventory);
size_t policy_inventory_count(const struct policy_inventory *inventory);
// Server, kind and name of one item, as a question without an identity.
struct policy_question policy_inventory_at(const struct policy_inventory *inventory, size_t i);

// Parses, checks, compiles, and runs the embedded tests. NULL if there is an error; the findings have all of them.
struct policy *policy_load(const struct policy_load *load, struct policy_findings *findings,
                           struct err *err) MUST_CHECK;
struct policy *policy_ref(struct policy *policy);
void policy_unref(struct policy *policy);
// The policy for the provider `none` on a loopback listener: allows everything to every caller.
struct policy *policy_allow_all(void);
void policy_findings_release(struct policy_findings *findings);

// A policy and the results of earlier questions to it: the rules in force, and the rules about names, servers and the last
// caller. It keeps a reference to the policy. Make one, ask all questions through it, and free it at the end.
struct policy_memo *policy_memo_new(struct policy *policy);
void policy_memo_free(struct policy_memo *memo);
const struct policy *policy_memo_policy(const struct policy_memo *memo);

// URIs and templates must be canonical (auth/policy/uri.h); names of tools and prompts always are. Any other spelling is
// denied as "uri_not_canonical" before a rule is evaluated, because the rules are about the canonical spelling.
bool policy_is_canonical(const struct policy_question *question);
// Does the decision need the arguments: does a rule with conditions, a shadow rule included, match apart from them?
bool policy_looks_at_arguments(struct policy_memo *memo, const struct policy_question *question);
struct policy_decision policy_decide(struct policy_memo *memo, const struct policy_question *question);
// May it be listed? True if it is allowed for some arguments and not denied for all.
bool policy_visible(struct policy_memo *memo, const struct policy_question *question);
// The same for a pattern in place of a name, as `policy diff` compares them: may anything that the pattern matches be listed?
bool policy_visible_pattern(struct policy_memo *memo, const struct policy_question *question);
// Is the server visible to the identity: may the identity see any item that the server could list?
bool policy_visible_server(struct policy_memo *memo, const struct identity *identity, const char *server);
// The time of the next change without a reload, in seconds since the epoch: a rule expires. INT64_MAX: never.
int64_t policy_next_expiry(struct policy_memo *memo);
// A sum over the rules with this effect that match the question apart from conditions: 0 without such a rule, and the same
// number under two policies if the matching rules have the same conditions.
uint64_t policy_stance(struct policy_memo *memo, const struct policy_question *question, enum verdict effect);
// The values that the caller may pass, as far as the rules determine them in advance: an object of JSON Pointers into the
// arguments, each with the only values that an allow rule accepts there. NULL: not known. It is a hint for lists and not
// the control, and may contain too much but not too little: a call with any other value there would be denied.
json_t *policy_narrowing(struct policy_memo *memo, const struct policy_question *question);
bool policy_condition_has(const json_t *values, const json_t *value);  // by the equality of `in`
// The first shadow rule that matches, or NULL; shadow rules never decide.
const struct policy_rule *policy_shadow(struct policy_memo *memo, const struct policy_question *question);

bool policy_is_open(const struct policy *policy);        // the built-in policy that allows everything
const char *policy_digest(const struct policy *policy);  // SHA-256 of the formatted files, hex
size_t policy_rule_count(const struct policy *policy);
const struct policy_rule *policy_rule_at(const struct policy *policy, size_t i);
size_t policy_test_count(const struct policy *policy);
const struct policy_test *policy_test_at(const struct policy *policy, size_t i);
// Explains why a rule does not match the question. Writes the first selector that failed to `why` ("names",
// "when /owner: …"), and for a subject through a group the path to `via`. True if the rule matches.
bool policy_rule_matches(const struct policy *policy, const struct policy_rule *rule,
                         const struct policy_question *question, bool redact, struct buf *why, struct buf *via);
// Every user:… and role:… in rules and groups, each once; NULL at the end. The caller frees each and the list.
char **policy_principals(const struct policy *policy);
// The names and patterns of a rule, with its sets replaced by their contents. Freed like the list above.
char **policy_rule_names(const struct policy *policy, const struct policy_rule *rule);
// The caller of a test: a new identity.
struct identity *policy_test_identity(const struct policy_test *test);
bool policy_kind_parse(const char *word, enum policy_kind *out);
const char *policy_kind_text(enum policy_kind kind);
// A number that changes when a file there is changed, added, removed or replaced; 0 if it cannot be read.
uint64_t policy_fingerprint(const char *path);
// The formatted text of one policy file: fixed key order, sorted selectors, two spaces.
char *policy_format(const char *path, struct err *err) MUST_CHECK;

#endif
