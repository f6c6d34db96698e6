// Owns the checks of policy files that do not need a decision: errors E2 to E13 and warnings.
#include "base/glob.h"
#include "base/map.h"
#include "base/mem.h"
#include "condition.h"
#include "source.h"
#include "uri_form.h"
#include <stdio.h>
#include <stdlib.h>

#define DESCRIPTION_MIN 10
#define RULES_COMFORT 500
#define GROUP_DEPTH_MAX 32
#define GROUPS_INSIDE_MAX 1000
#define SOON_SECONDS (14 * 86400)

struct lint {
    const struct policy_source *source;
    const struct policy_load *load;
    struct policy_findings *findings;
    const struct policy_file *file;
    bool groups_sound;  // none of them contains itself
};

// True if one of the names, or of the names in their sets, is "*".
static bool has_star(const struct policy_source *source, char *const *names)
{
    for (; names && *names; names++) {
        const struct policy_set *set = strncmp(*names, "set:", 4) == 0 ? policy_source_set(source, *names + 4) : NULL;
        if ((**names && strspn(*names, "*") == strlen(*names)) || (set && has_star(NULL, set->names)))
            return true;
    }
    return false;
}

static bool in_list(const char *const *list, const char *word)
{
    for (; list && *list; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

#define SAY(lint, code, rule, ...)                                                                \
    do {                                                                                          \
        policy_findings_add((lint)->findings, code, (lint)->file->path,                           \
                            (rule) ? policy_place_id((lint)->file, rule) : 0, rule, __VA_ARGS__); \
        point(lint, rule);                                                                        \
    } while (0)

// The last finding begins with a member of the rule: makes that a JSON Pointer into the file.
static void point(const struct lint *lint, const char *rule)
{
    const struct policy_rule *rules = lint->file->rules.at;
    struct policy_finding *finding = &lint->findings->at[lint->findings->count - 1];
    for (size_t i = 0; rule && i < lint->file->rules.count; i++)
        if (rules[i].id == rule) {
            struct buf text = {0};
            buf_printf(&text, "/rules/%zu/%s", i, finding->text);
            free(finding->text);
            finding->text = buf_take(&text, NULL);
            return;
        }
}

static void check_description(const struct lint *lint, const char *text, const char *what, const char *rule)
{
    if (!text || strlen(text) < DESCRIPTION_MIN)
        SAY(lint, "E3", rule, "%s: write at least %d characters that explain its purpose", what, DESCRIPTION_MIN);
}

// ---- selectors ------------------------------------------------------------------------------

// Reports a name that is not in the configuration, with the most similar one that is.
static void say_unknown(const struct lint *lint, const char *rule, const char *where, const char *name,
                        const char *const *known)
{
    const char *near = option_nearest(name, known);
    SAY(lint, "E4", rule, "%s \"%s\" does not exist in the configuration%s%s%s", where, name,
        near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "; correct the name");
}

static void check_provider(const struct lint *lint, const char *user, const char *what, const char *rule)
{
    const char *const *known = lint->load->providers;
    char *provider = mem_copy(user + 5, strcspn(user + 5, ":")), where[192];
    snprintf(where, sizeof where, "%s: \"%.80s\": provider", what, user);
    if (known && !in_list(known, provider))
        say_unknown(lint, rule, where, provider, known);
    free(provider);
}

static void check_member(const struct lint *lint, const char *subject, const char *what, const char *rule)
{
    const char *name = strchr(subject, ':');
    if (strcmp(subject, "*") == 0 || strcmp(subject, "anonymous") == 0 || strcmp(subject, "authenticated") == 0)
        return;
    if (strncmp(subject, "group:", 6) == 0) {
        if (!policy_source_group(lint->source, subject + 6))
            SAY(lint, "E4", rule, "%s: group \"%s\" does not exist; define it in \"groups\", or correct the name", what,
                subject + 6);
        return;
    }
    bool user = strncmp(subject, "user:", 5) == 0 && strchr(subject + 5, ':') && name[1];
    bool role = strncmp(subject, "role:", 5) == 0 && name[1];
    if (!user && !role)
        SAY(lint, "E7", rule,
            "%s: \"%s\" is not a subject; write user:PROVIDER:NAME, role:ROLE, group:GROUP, anonymous, authenticated "
            "or *",
            what, subject);
    else if (strchr(subject, '*'))
        SAY(lint, "E7", rule, "%s: \"%s\": subjects cannot be patterns; only \"*\" alone is allowed", what, subject);
    else if (user)
        check_provider(lint, subject, what, rule);
}

static void check_patterns(const struct lint *lint, char *const *patterns, const char *what, const char *rule)
{
    for (; *patterns; patterns++) {
        if (!**patterns || !glob_valid(*patterns))
            SAY(lint, "E7", rule, "%s: \"%s\" is not a pattern; '*' matches any text, \"\\\\*\" an asterisk", what,
                *patterns);
        if (strstr(*patterns, "**"))
            SAY(lint, "W11", rule, "%s: \"%s\": \"**\" means the same as \"*\"; write \"*\"", what, *patterns);
    }
}

// The policy denies other spellings of a URI before it evaluates rules, so a rule about one would never match.
static void check_uri(const struct lint *lint, const struct policy_rule *rule, const char *name)
{
    struct buf canonical = {0};
    bool template = false, uris = true;
    for (char **kind = rule->kinds; *kind; kind++) {
        template = template || strcmp(*kind, "resource_template") == 0 || strcmp(*kind, "*") == 0;
        uris = uris && strncmp(*kind, "resource", 8) == 0;
    }
    bool named = uris || strstr(name, "://") || strncmp(name, "file:", 5) == 0;
    if (named && !policy_uri_pattern_can_match(name, template)) {
        bool known = policy_uri_put_canonical(span_of(name), template, &canonical);
        SAY(lint, "E7", rule->id, "names: \"%s\" is not canonical and matches no URI%s%s%s", name,
            known ? "; write \"" : "; see \"URIs\" in docs/policy.md", known ? buf_text(&canonical) : "",
            known ? "\"" : "");
    }
    buf_release(&canonical);
}

static bool names_uris(const struct policy_rule *rule)
{
    for (char **kind = rule->kinds; *kind; kind++)
        if (strncmp(*kind, "resource", 8) == 0 || strcmp(*kind, "*") == 0)
            return true;
    return false;
}

static void check_uris(const struct lint *lint, const struct policy_rule *rule)
{
    for (char **name = rule->names; names_uris(rule) && *name; name++) {
        const struct policy_set *set =
            strncmp(*name, "set:", 4) == 0 ? policy_source_set(lint->source, *name + 4) : NULL;
        for (char **one = set ? set->names : (char *[]){*name, NULL}; one && *one; one++)
            check_uri(lint, rule, *one);
    }
}

static void check_names(const struct lint *lint, const struct policy_rule *rule)
{
    for (char **name = rule->names; *name; name++)
        if (strncmp(*name, "set:", 4) == 0 && !policy_source_set(lint->source, *name + 4))
            SAY(lint, "E4", rule->id, "names: set \"%s\" does not exist; define it in \"sets\", or correct the name",
                *name + 4);
    check_patterns(lint, rule->names, "names", rule->id);
}

static void check_servers(const struct lint *lint, const struct policy_rule *rule)
{
    check_patterns(lint, rule->servers, "servers", rule->id);
    for (char **name = rule->servers; lint->load->servers && *name; name++)
        if (glob_is_literal(*name) && !in_list(lint->load->servers, *name))
            say_unknown(lint, rule->id, "servers: server", *name, lint->load->servers);
}

static void check_tenants(const struct lint *lint, const struct policy_rule *rule)
{
    check_patterns(lint, rule->tenants, "tenants", rule->id);
    for (char **name = rule->tenants; lint->load->tenants && *name; name++)
        if (glob_is_literal(*name) && !in_list(lint->load->tenants, *name))
            say_unknown(lint, rule->id, "tenants: tenant", *name, lint->load->tenants);
}

static void check_kinds(const struct lint *lint, const struct policy_rule *rule)
{
    enum policy_kind kind;
    for (char **word = rule->kinds; *word; word++)
        if (strcmp(*word, "*") != 0 && !policy_kind_parse(*word, &kind))
            SAY(lint, "E7", rule->id, "kinds: \"%s\" is not one of tool, resource, resource_template, prompt, *",
                *word);
}

// Conditions are about arguments, which resources and templates do not have.
static void check_when(const struct lint *lint, const struct policy_rule *rule)
{
    struct buf where = {0};
    enum policy_kind kind;
    if (!condition_check(rule->when, &where))
        SAY(lint, "E7", rule->id, "when%s", buf_text(&where));
    for (char **word = rule->kinds; *word; word++)
        if (strcmp(*word, "*") == 0 ||
            (policy_kind_parse(*word, &kind) && kind != POLICY_TOOL && kind != POLICY_PROMPT))
            SAY(lint, "E13", rule->id,
                "kinds: \"%s\" with \"when\": only tools and prompts have arguments; split the rule", *word);
    buf_release(&where);
}

// A file with a scope may have another owner, so its rules must stay inside the scope.
static void check_scope(const struct lint *lint, const struct policy_rule *rule)
{
    char *const *tenants = lint->file->scope.tenants, *const *servers = lint->file->scope.servers;
    for (char **name = rule->tenants; tenants && *name; name++)
        if (!in_list((const char *const *)tenants, *name))
            SAY(lint, "E4", rule->id,
                "tenants: \"%s\" is outside the scope of this file; remove it, or extend \"scope\"", *name);
    for (char **name = rule->servers; servers && *name; name++)
        if (!in_list((const char *const *)servers, *name))
            SAY(lint, "E4", rule->id,
                "servers: \"%s\" is outside the scope of this file; remove it, or extend \"scope\"", *name);
}

static bool has_selectors(const struct lint *lint, const struct policy_rule *rule)
{
    const struct {
        const char *name;
        char *const *list;
    } all[] = {{"tenants", rule->tenants},
               {"subjects", rule->subjects},
               {"servers", rule->servers},
               {"kinds", rule->kinds},
               {"names", rule->names}};
    bool ok = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].list && all[i].list[0])
            continue;
        SAY(lint, "E5", rule->id, "%s: is empty; write [\"*\"] for everything%s", all[i].name,
            i == 0 ? ", or name exactly one tenant at the top of the file" : "");
        ok = false;
    }
    return ok;
}

// ---- rules ----------------------------------------------------------------------------------

// A run of 32 letters and digits with upper case, lower case and digits is not a name.
static bool looks_secret(const char *text)
{
    size_t run = 0;
    bool upper = false, lower = false, digit = false;
    for (;; text++) {
        bool part = (*text >= 'A' && *text <= 'Z') || (*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9');
        if (!part) {
            if (run >= 32 && upper && lower && digit)
                return true;
            run = 0;
            upper = lower = digit = false;
            if (!*text)
                return false;
            continue;
        }
        run++;
        upper = upper || (*text >= 'A' && *text <= 'Z');
        lower = lower || (*text >= 'a' && *text <= 'z');
        digit = digit || (*text >= '0' && *text <= '9');
    }
}

// `pointer` is the place of the tree.
static void check_secrets(const struct lint *lint, const json_t *tree, struct buf *pointer)
{
    size_t i, len = pointer->len;
    json_t *value;
    const char *key;
    if (json_is_string(tree) && looks_secret(json_string_value(tree)))
        SAY(lint, "E11", (const char *)NULL,
            "%s: contains text that looks like a secret; remove it, because many people read policies",
            buf_text(pointer));
    if (json_is_array(tree))
        json_array_foreach((json_t *)(uintptr_t)tree, i, value) {
            buf_printf(pointer, "/%zu", i);
            check_secrets(lint, value, pointer);
            pointer->len = len;
        }
    if (json_is_object(tree))
        json_object_foreach((json_t *)(uintptr_t)tree, key, value) {
            policy_place_put(pointer, key);
            check_secrets(lint, value, pointer);
            pointer->len = len;
        }
}

static void check_time(const struct lint *lint, const struct policy_rule *rule)
{
    if (!rule->expires)
        return;
    if (!rule->effect)
        SAY(lint, "E12", rule->id, "expires: a deny rule cannot expire; remove the rule when it is no longer needed");
    else if (!rule->expires_at)
        SAY(lint, "E7", rule->id, "expires: \"%s\" is not a date; write YYYY-MM-DD", rule->expires);
    else if (rule->expires_at <= lint->load->now)
        SAY(lint, "W8", rule->id,
            "expires: the rule expired on %s and no longer allows anything; remove or renew the rule", rule->expires);
    else if (rule->expires_at - lint->load->now < SOON_SECONDS)
        SAY(lint, "W8", rule->id, "expires: the rule expires soon, on %s; renew or remove the rule", rule->expires);
}

static bool takes_anonymous(const struct policy_source *source, char *const *subjects, int depth)
{
    for (; subjects && *subjects && depth <= GROUP_DEPTH_MAX; subjects++) {
        const struct policy_group *group =
            strncmp(*subjects, "group:", 6) == 0 ? policy_source_group(source, *subjects + 6) : NULL;
        if (strcmp(*subjects, "*") == 0 || strcmp(*subjects, "anonymous") == 0 ||
            (group && takes_anonymous(source, group->members, depth + 1)))
            return true;
    }
    return false;
}

static bool is_open(const struct lint *lint, const struct policy_rule *rule)
{
    return lint->groups_sound && rule->effect && takes_anonymous(lint->source, rule->subjects, 0) &&
           has_star(lint->source, rule->names);
}

static void check_rule(const struct lint *lint, const struct policy_rule *rule)
{
    if (!rule->id || !*rule->id) {
        SAY(lint, "E7", (const char *)NULL, "/rules/%zu: has no id; give it a unique id", rule->at);
        return;
    }
    check_description(lint, rule->description, "description", rule->id);
    if (!has_selectors(lint, rule))
        return;
    for (char **subject = rule->subjects; *subject; subject++)
        check_member(lint, *subject, "subjects", rule->id);
    check_tenants(lint, rule);
    check_servers(lint, rule);
    check_kinds(lint, rule);
    check_names(lint, rule);
    check_uris(lint, rule);
    check_scope(lint, rule);
    check_time(lint, rule);
    if (rule->when)
        check_when(lint, rule);
    if (is_open(lint, rule) && (!rule->acknowledge || strcmp(rule->acknowledge, "open") != 0))
        SAY(lint, "E8", rule->id,
            "names: the rule allows every caller everything on its servers; narrow it, or write \"acknowledge\": "
            "\"open\"");
}

// ---- across rules ---------------------------------------------------------------------------

static void check_ids(const struct policy_source *source, struct policy_findings *findings)
{
    struct map seen = {0};
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_rule *rules = source->files[i].rules.at;
        for (size_t k = 0; k < source->files[i].rules.count; k++) {
            const struct policy_rule *first = rules[k].id ? map_find(&seen, span_of(rules[k].id)) : NULL;
            if (first)
                policy_findings_add(findings, "E2", rules[k].file, rules[k].line, rules[k].id,
                                    "/rules/%zu/id: the id is used already in %s:%d; choose another", k, first->file,
                                    first->line);
            else if (rules[k].id)
                map_put(&seen, span_of(rules[k].id), (void *)(uintptr_t)&rules[k]);
        }
    }
    map_release(&seen);
}

// ---- groups, sets, tests --------------------------------------------------------------------

// True also if the nesting is too deep, or if it would take too long to follow (*left: groups that may still be visited).
static bool has_cycle(const struct policy_source *source, const struct policy_group *group, const char *start,
                      int depth, int *left)
{
    if (depth > GROUP_DEPTH_MAX || (*left)-- == 0)
        return true;
    for (char **member = group->members; member && *member; member++) {
        if (strncmp(*member, "group:", 6) != 0)
            continue;
        const struct policy_group *next = policy_source_group(source, *member + 6);
        if (strcmp(*member + 6, start) == 0 || (next && has_cycle(source, next, start, depth + 1, left)))
            return true;
    }
    return false;
}

static bool is_member_of(char *const *subjects, const char *group)
{
    for (; subjects && *subjects; subjects++)
        if (strncmp(*subjects, "group:", 6) == 0 && strcmp(*subjects + 6, group) == 0)
            return true;
    return false;
}

static bool is_used(const struct policy_source *source, const char *group)
{
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_rule *rules = source->files[i].rules.at;
        const struct policy_group *groups = source->files[i].groups.at;
        for (size_t k = 0; k < source->files[i].rules.count; k++)
            if (is_member_of(rules[k].subjects, group))
                return true;
        for (size_t k = 0; k < source->files[i].groups.count; k++)
            if (is_member_of(groups[k].members, group))
                return true;
    }
    return false;
}

static void check_groups(struct lint *lint)
{
    const struct policy_group *groups = lint->file->groups.at;
    for (size_t i = 0; i < lint->file->groups.count; i++) {
        struct buf where = {0};
        buf_put_text(&where, "/groups");
        policy_place_put(&where, groups[i].name);
        const char *what = buf_text(&where);
        check_description(lint, groups[i].description, what, NULL);
        if (!groups[i].members || !groups[i].members[0])
            SAY(lint, "W7", (const char *)NULL, "%s: has no members; add members or remove it", what);
        else if (!is_used(lint->source, groups[i].name))
            SAY(lint, "W7", (const char *)NULL, "%s: is not used by a rule or a group; use or remove it", what);
        for (char **member = groups[i].members; member && *member; member++)
            check_member(lint, *member, what, NULL);
        bool sound = !has_cycle(lint->source, &groups[i], groups[i].name, 0, &(int){GROUPS_INSIDE_MAX});
        lint->groups_sound = lint->groups_sound && sound;
        if (!sound)
            SAY(lint, "E6", (const char *)NULL, "%s: contains itself, or nests more than %d groups or %d levels", what,
                GROUPS_INSIDE_MAX, GROUP_DEPTH_MAX);
        if (policy_source_group(lint->source, groups[i].name) != &groups[i])
            SAY(lint, "E2", (const char *)NULL, "%s: is defined twice; rename one of them", what);
        buf_release(&where);
    }
}

static void check_sets(const struct lint *lint)
{
    const struct policy_set *sets = lint->file->sets.at;
    for (size_t i = 0; i < lint->file->sets.count; i++) {
        struct buf where = {0};
        buf_put_text(&where, "/sets");
        policy_place_put(&where, sets[i].name);
        const char *what = buf_text(&where);
        check_description(lint, sets[i].description, what, NULL);
        if (!sets[i].names || !sets[i].names[0])
            SAY(lint, "E5", (const char *)NULL, "%s: is empty; add names or remove it", what);
        else
            check_patterns(lint, sets[i].names, what, NULL);
        if (policy_source_set(lint->source, sets[i].name) != &sets[i])
            SAY(lint, "E2", (const char *)NULL, "%s: is defined twice; rename one of them", what);
        buf_release(&where);
    }
}

static bool rule_exists(const struct policy_source *source, const char *id)
{
    for (size_t i = 0; i < source->count; i++) {
        const struct policy_rule *rules = source->files[i].rules.at;
        for (size_t k = 0; k < source->files[i].rules.count; k++)
            if (rules[k].id && strcmp(rules[k].id, id) == 0)
                return true;
    }
    return strcmp(id, "default") == 0 || strcmp(id, "uri_not_canonical") == 0;
}

// Parsing gives an absent key the first of its words, `deny`. A file must state the word itself.
static void check_words(const struct lint *lint, const char *list, const char *key)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(lint->file->tree, list), i, item)
        if (!json_object_get(item, key))
            policy_findings_add(lint->findings, "E7", lint->file->path, 0,
                                json_string_value(json_object_get(item, "id")),
                                "/%s/%zu: \"%s\" is missing; write allow or deny", list, i, key);
}

static void check_tests(const struct lint *lint)
{
    const struct policy_test *tests = lint->file->tests.at;
    for (size_t i = 0; i < lint->file->tests.count; i++) {
        char what[192];
        snprintf(what, sizeof what, "/tests/%zu \"%.120s\"", i, tests[i].description ? tests[i].description : "");
        check_description(lint, tests[i].description, what, NULL);
        if (!tests[i].server || !tests[i].name)
            SAY(lint, "E7", (const char *)NULL, "%s: needs a server and a name", what);
        if (tests[i].by && !rule_exists(lint->source, tests[i].by))
            SAY(lint, "E10", (const char *)NULL, "%s: rule \"%s\" does not exist", what, tests[i].by);
        const char *subject = tests[i].as.subject, *colon = subject ? strchr(subject, ':') : NULL;
        if (subject && strcmp(subject, "anonymous") != 0 &&
            (!colon || colon == subject || !colon[1] || strncmp(subject, "user:", 5) == 0))
            SAY(lint, "E7", (const char *)NULL, "%s: as/subject: write PROVIDER:NAME or anonymous, not \"%s\"", what,
                subject);
        if (tests[i].args && !json_is_object(tests[i].args))
            SAY(lint, "E7", (const char *)NULL, "%s: args must be an object", what);
    }
}

static void check_file(const struct lint *lint)
{
    const struct policy_rule *rules = lint->file->rules.at;
    struct buf pointer = {0};
    check_description(lint, lint->file->description, "/description", NULL);
    check_secrets(lint, lint->file->tree, &pointer);
    check_sets(lint);
    for (size_t i = 0; i < lint->file->rules.count; i++)
        check_rule(lint, &rules[i]);
    check_tests(lint);
    check_words(lint, "rules", "effect");
    check_words(lint, "tests", "expect");
    if (lint->file->rules.count > RULES_COMFORT)
        SAY(lint, "W12", (const char *)NULL, "/rules: %zu rules in one file; split the file", lint->file->rules.count);
    buf_release(&pointer);
}

void policy_lint(const struct policy_source *source, const struct policy_load *load, struct policy_findings *findings)
{
    struct lint lint = {source, load, findings, source->files, true};
    for (size_t i = 0; i < source->count; i++) {
        lint.file = &source->files[i];
        check_groups(&lint);
    }
    for (size_t i = 0; i < source->count; i++) {
        lint.file = &source->files[i];
        check_file(&lint);
    }
    check_ids(source, findings);
    if (!findings->errors)
        policy_overlap_lint(source, findings);
}
