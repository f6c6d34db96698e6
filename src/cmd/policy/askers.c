// Owns the callers that are tried when a policy is examined as a whole, and the extent of access of each.
#include "base/map.h"
#include "base/mem.h"
#include "subcommands.h"
#include <stdlib.h>

#define NO_PROVIDER "?"  // the provider of callers that are known by a role alone

bool policy_askers_has(const struct policy_askers *askers, const char *label, const char *tenant)
{
    for (size_t i = 0; i < askers->count; i++)
        if (strcmp(askers->at[i].label, label) == 0 && strcmp(askers->at[i].identity->tenant, tenant) == 0)
            return true;
    return false;
}

static void add(struct policy_askers *askers, const char *label, struct identity *who)
{
    askers->at = mem_resize(askers->at, (askers->count + 1) * sizeof *askers->at);
    askers->at[askers->count++] = (struct policy_asker){mem_string(label), who};
}

// `who` is a subject selector: user:P:N, role:R, anonymous or authenticated.
static void add_asker(struct policy_askers *askers, const char *who, const char *tenant)
{
    const char *roles[2] = {strncmp(who, "role:", 5) == 0 ? who + 5 : NULL, NULL};
    const char *subject = strncmp(who, "user:", 5) == 0 ? who + 5 : NO_PROVIDER ":unnamed";
    if (policy_askers_has(askers, who, tenant))
        return;
    if (strcmp(who, "anonymous") == 0)
        subject = who;
    struct policy_test test = {.as = {.tenant = (char *)(uintptr_t)tenant,
                                      .subject = (char *)(uintptr_t)subject,
                                      .roles = (char **)(uintptr_t)roles}};
    add(askers, who, policy_test_identity(&test));
}

// Adds the caller of a test, with all of its roles at once.
static void add_tested(struct policy_askers *askers, const struct policy_test *test)
{
    struct identity *who = policy_test_identity(test);
    struct buf label = {0};
    if (who->proof == IDENTITY_ANONYMOUS)
        buf_put_text(&label, "anonymous");
    else
        buf_printf(&label, "user:%s:%s", who->provider, who->subject);
    for (size_t i = 0; i < who->role_count; i++)
        buf_printf(&label, "%srole:%s", i ? "," : " with ", who->roles[i]);
    if (!policy_askers_has(askers, buf_text(&label), who->tenant))
        add(askers, buf_text(&label), who);
    else
        identity_unref(who);
    buf_release(&label);
}

static void add_tenant(struct policy_askers *askers, const struct policy *policy, const char *tenant)
{
    char **named = policy_principals(policy);
    add_asker(askers, "anonymous", tenant);
    add_asker(askers, "authenticated", tenant);
    for (char **one = named; *one; one++) {
        add_asker(askers, *one, tenant);
        free(*one);
    }
    free(named);
}

static void find_tenants(struct map *tenants, struct policy *policy)
{
    for (size_t i = 0; i < policy_rule_count(policy); i++)
        for (char **one = policy_rule_at(policy, i)->tenants; *one; one++)
            map_put(tenants, span_of(*one), policy);
    for (size_t i = 0; i < policy_test_count(policy); i++)
        if (policy_test_at(policy, i)->as.tenant)
            map_put(tenants, span_of(policy_test_at(policy, i)->as.tenant), policy);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static char **sorted(const struct map *map)
{
    char **names = mem_alloc((map->count + 1) * sizeof *names);
    struct span key;
    size_t count = 0;
    for (size_t at = 0; map_next(map, &at, &key, &(void *){NULL});)
        names[count++] = mem_span(key);
    qsort(names, count, sizeof *names, by_name);
    return names;
}

void policy_askers_add(struct policy_askers *askers, struct policy *policy, struct policy *other, const char *tenant)
{
    struct policy *const both[] = {policy, other};
    struct map tenants = {0};
    for (size_t i = 0; i < 2 && both[i] && !tenant; i++)
        find_tenants(&tenants, both[i]);
    // A caller of a tenant that is not named: of "default", unless that is named.
    if (!tenant && !map_find(&tenants, span_of("default")) && map_find(&tenants, span_of("*")))
        map_remove(&tenants, span_of("*"));
    map_put(&tenants, span_of(tenant ? tenant : "default"), policy);
    char **names = sorted(&tenants);
    for (size_t i = 0; i < tenants.count; i++) {
        for (size_t k = 0; k < 2 && both[k]; k++)
            add_tenant(askers, both[k], names[i]);
        free(names[i]);
    }
    free(names);
    for (size_t i = 0; i < 2 && both[i]; i++)
        for (size_t k = 0; k < policy_test_count(both[i]); k++) {
            const struct policy_test *test = policy_test_at(both[i], k);
            if (!tenant || strcmp(test->as.tenant ? test->as.tenant : "default", tenant) == 0)
                add_tested(askers, test);
        }
    map_release(&tenants);
}

void policy_askers_release(struct policy_askers *askers)
{
    for (size_t i = 0; i < askers->count; i++)
        policy_askers_release_one(&askers->at[i]);
    free(askers->at);
    *askers = (struct policy_askers){0};
}

// A single user or role, without any other property.
static bool is_user(const struct identity *who) { return strcmp(who->provider, NO_PROVIDER) != 0; }
static bool is_single(const struct identity *who)
{
    return who->proof != IDENTITY_ANONYMOUS && who->role_count + is_user(who) == 1;
}

bool policy_askers_is_unnamed(const struct policy_asker *asker)
{
    const struct identity *who = asker->identity;
    return who->proof != IDENTITY_ANONYMOUS && !who->role_count && !is_user(who);
}

bool policy_askers_join(const struct policy_asker *a, const struct policy_asker *b, struct policy_asker *out)
{
    const struct identity *one = a->identity, *two = b->identity;
    if (is_user(two))
        return !is_user(one) && policy_askers_join(b, a, out);
    if (!is_single(one) || !is_single(two) || strcmp(one->tenant, two->tenant) != 0)
        return false;
    struct identity *who = identity_new(one->proof, one->tenant, one->provider, one->subject);
    struct buf label = {0};
    for (size_t i = 0; i < one->role_count; i++)
        identity_add_role(who, span_of(one->roles[i]));
    identity_add_role(who, span_of(two->roles[0]));
    buf_printf(&label, "%s with %s", a->label, b->label);
    *out = (struct policy_asker){buf_take(&label, NULL), who};
    return true;
}

void policy_askers_release_one(struct policy_asker *asker)
{
    free(asker->label);
    identity_unref(asker->identity);
}

// ---- extent ---------------------------------------------------------------------------------

static void put_condition(struct buf *out, const struct policy_rule *rule)
{
    char *text = json_dumps(rule->when, JSON_COMPACT | JSON_SORT_KEYS);
    buf_printf(out, "%s%s when %s", out->len ? "; " : "", rule->effect ? "allow" : "deny", text ? text : "?");
    free(text);
}

enum policy_extent policy_askers_extent(struct policy_memo *memo, const struct policy_question *question,
                                        struct buf *conditions)
{
    const struct policy *policy = policy_memo_policy(memo);
    struct policy_question bare = *question;
    bool allowed = false, denied = false;
    bare.args = NULL;
    if (!policy_visible_pattern(memo, &bare))
        return EXTENT_NONE;
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        struct policy_rule rule = *policy_rule_at(policy, i);
        json_t *when = rule.when;
        rule.when = NULL;
        if (rule.mode || !policy_rule_matches(policy, &rule, &bare, true, NULL, NULL))
            continue;
        rule.when = when;
        allowed = allowed || (rule.effect && !when);
        denied = denied || (!rule.effect && when);
        if (when && conditions)
            put_condition(conditions, &rule);
    }
    if (!allowed || denied)
        return EXTENT_SOME;
    if (conditions)
        buf_clear(conditions);  // an allow rule without a condition makes them irrelevant
    return EXTENT_ALL;
}
