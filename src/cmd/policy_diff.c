// Owns `postern policy diff`: who may do what under one policy and not under another.
//
// The universe is everybody and everything either policy names. A pattern stands for itself: the text
// "get_*" is a name that the pattern get_* takes, and no narrower one does. Where two patterns overlap,
// as get_* and *_secret do, their common part is in it too. With an inventory, so is everything there is.
#include "base/map.h"
#include "base/mem.h"
#include "policy.h"
#include <stdio.h>
#include <stdlib.h>

#define PATTERNS_COMBINED 300
#define ITEMS_MAX 20000

// ---- everybody ------------------------------------------------------------------------------

static bool has_asker(const struct policy_askers *askers, const char *label, const char *tenant)
{
    for (size_t i = 0; i < askers->count; i++)
        if (strcmp(askers->at[i].label, label) == 0 && strcmp(askers->at[i].identity->tenant, tenant) == 0)
            return true;
    return false;
}

// `who` is what a subject selector says: user:P:N, role:R, anonymous or authenticated.
static void add_asker(struct policy_askers *askers, const char *who, const char *tenant)
{
    const char *roles[2] = {strncmp(who, "role:", 5) == 0 ? who + 5 : NULL, NULL};
    const char *subject = strncmp(who, "user:", 5) == 0 ? who + 5 : "?:somebody";
    if (has_asker(askers, who, tenant))
        return;
    if (strcmp(who, "anonymous") == 0)
        subject = who;
    struct policy_test test = {.as = {.tenant = (char *)(uintptr_t)tenant,
                                      .subject = (char *)(uintptr_t)subject,
                                      .roles = (char **)(uintptr_t)roles}};
    askers->at = mem_resize(askers->at, (askers->count + 1) * sizeof *askers->at);
    askers->at[askers->count++] = (struct policy_asker){mem_string(who), policy_test_identity(&test)};
}

// Who a test asks as, with all roles at once.
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
    if (has_asker(askers, buf_text(&label), who->tenant)) {
        identity_unref(who);
        buf_release(&label);
        return;
    }
    askers->at = mem_resize(askers->at, (askers->count + 1) * sizeof *askers->at);
    askers->at[askers->count++] = (struct policy_asker){buf_take(&label, NULL), who};
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

void policy_askers_add(struct policy_askers *askers, struct policy *policy, const char *tenant)
{
    struct map tenants = {0};
    struct span key;
    void *unused;
    map_put(&tenants, span_of(tenant ? tenant : "default"), policy);
    for (size_t i = 0; !tenant && i < policy_rule_count(policy); i++)
        for (char **one = policy_rule_at(policy, i)->tenants; *one; one++)
            map_put(&tenants, span_of(*one), policy);
    for (size_t i = 0; !tenant && i < policy_test_count(policy); i++)
        if (policy_test_at(policy, i)->as.tenant)
            map_put(&tenants, span_of(policy_test_at(policy, i)->as.tenant), policy);
    if (!tenant && tenants.count > 1 && map_find(&tenants, span_of("*")))
        map_remove(&tenants, span_of("*"));
    for (size_t at = 0; map_next(&tenants, &at, &key, &unused);) {
        char *name = mem_span(key);
        add_tenant(askers, policy, name);
        free(name);
    }
    for (size_t i = 0; i < policy_test_count(policy); i++) {
        const char *its = policy_test_at(policy, i)->as.tenant;
        if (!tenant || strcmp(its ? its : "default", tenant) == 0)
            add_tested(askers, policy_test_at(policy, i));
    }
    map_release(&tenants);
}

void policy_askers_release(struct policy_askers *askers)
{
    for (size_t i = 0; i < askers->count; i++) {
        free(askers->at[i].label);
        identity_unref(askers->at[i].identity);
    }
    free(askers->at);
    *askers = (struct policy_askers){0};
}

// ---- how far --------------------------------------------------------------------------------

static void put_condition(struct buf *out, const struct policy_rule *rule)
{
    char *text = json_dumps(rule->when, JSON_COMPACT | JSON_SORT_KEYS);
    buf_printf(out, "%s%s when %s", out->len ? "; " : "", rule->effect ? "allow" : "deny", text ? text : "?");
    free(text);
}

enum policy_reach policy_reach(struct policy *policy, const struct policy_question *question, struct buf *conditions)
{
    struct policy_question bare = *question;
    bool allowed = false, denied = false;
    bare.args = NULL;
    if (!policy_visible(policy, &bare) || strcmp(policy_decide(policy, &bare).by, "uri_not_canonical") == 0)
        return REACH_NONE;
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
        return REACH_SOME;
    if (conditions)
        buf_clear(conditions);  // an allow without any makes them irrelevant
    return REACH_ALL;
}

// ---- everything -----------------------------------------------------------------------------

struct items {
    struct policy_item *at;
    size_t count;
    struct map seen;
};

static void add_item(struct items *items, const char *server, enum policy_kind kind, const char *name)
{
    struct buf key = {0};
    buf_printf(&key, "%s %s %s", server, policy_kind_text(kind), name);
    if (items->count < ITEMS_MAX && !map_find(&items->seen, buf_span(&key))) {
        map_put(&items->seen, buf_span(&key), items);
        if ((items->count & (items->count - 1)) == 0)  // full at 0 and at every power of two
            items->at = mem_resize(items->at, (items->count * 2 + 1) * sizeof *items->at);
        items->at[items->count++] = (struct policy_item){mem_string(server), mem_string(name), kind};
    }
    buf_release(&key);
}

// A literal as a name: without the backslashes.
static char *as_name(const char *pattern)
{
    struct buf name = {0};
    for (; *pattern; pattern++) {
        if (*pattern == '\\' && (pattern[1] == '*' || pattern[1] == '\\'))
            pattern++;
        buf_put_char(&name, *pattern);
    }
    return buf_take(&name, NULL);
}

static void add_rule_items(struct items *items, const struct policy *policy, const struct policy_rule *rule)
{
    char **names = policy_rule_names(policy, rule);
    for (char **name = names; *name; name++) {
        char *plain = as_name(*name);
        for (char **server = rule->servers; *server; server++)
            for (char **kind = rule->kinds; *kind; kind++)
                for (int k = 0; k < POLICY_KINDS; k++)
                    if (strcmp(*kind, "*") == 0 || strcmp(*kind, policy_kind_text((enum policy_kind)k)) == 0)
                        add_item(items, *server, (enum policy_kind)k, plain);
        free(plain);
        free(*name);
    }
    free(names);
}

// What two patterns with a star have in common, if their ends fit: the longer start, a star, the longer end.
static char *common(const char *a, const char *b)
{
    const char *first_a = strchr(a, '*'), *first_b = strchr(b, '*'), *last_a = strrchr(a, '*'),
               *last_b = strrchr(b, '*');
    if (!first_a || !first_b || strcmp(a, b) == 0)
        return NULL;
    size_t head_a = (size_t)(first_a - a), head_b = (size_t)(first_b - b), tail_a = strlen(last_a + 1),
           tail_b = strlen(last_b + 1);
    size_t head = head_a < head_b ? head_a : head_b, tail = tail_a < tail_b ? tail_a : tail_b;
    if (strncmp(a, b, head) != 0 || strcmp(last_a + 1 + tail_a - tail, last_b + 1 + tail_b - tail) != 0)
        return NULL;
    struct buf both = {0};
    buf_put(&both, head_a > head_b ? a : b, head_a > head_b ? head_a : head_b);
    buf_put(&both, first_a, (size_t)(last_a - first_a) + 1);
    buf_put(&both, first_b + 1, (size_t)(last_b - first_b));
    buf_put_text(&both, tail_a > tail_b ? last_a + 1 : last_b + 1);
    return buf_take(&both, NULL);
}

static void combine(struct items *items)
{
    size_t count = items->count < PATTERNS_COMBINED ? items->count : PATTERNS_COMBINED;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < count; k++) {
            struct policy_item a = items->at[i], b = items->at[k];
            if (a.kind != b.kind || (strcmp(a.server, b.server) != 0 && !strchr(b.server, '*')))
                continue;
            add_item(items, a.server, a.kind, b.name);  // a pattern of servers is about this one, maybe
            char *name = common(a.name, b.name);
            if (name) {
                add_item(items, a.server, a.kind, name);
                free(name);
            }
        }
}

static void add_items(struct items *items, const struct policy *policy)
{
    for (size_t i = 0; i < policy_rule_count(policy); i++)
        add_rule_items(items, policy, policy_rule_at(policy, i));
    for (size_t i = 0; i < policy_test_count(policy); i++) {
        const struct policy_test *test = policy_test_at(policy, i);
        add_item(items, test->server, (enum policy_kind)test->kind, test->name);
    }
}

static void add_inventory(struct items *items, const struct policy_inventory *inventory)
{
    for (size_t i = 0; inventory && i < policy_inventory_count(inventory); i++) {
        struct policy_question item = policy_inventory_at(inventory, i);
        add_item(items, item.server, item.kind, item.name.at);
    }
}

static void items_release(struct items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        free(items->at[i].server);
        free(items->at[i].name);
    }
    free(items->at);
    map_release(&items->seen);
}

// ---- comparing ------------------------------------------------------------------------------

struct comparison {
    struct policy *old, *new;
    json_t *rows;
    size_t gained, lost, changed;
};

static void compare(struct comparison *all, const struct policy_asker *asker, const struct policy_item *item)
{
    static const char *const words[] = {"deny", "depends", "allow"};
    struct policy_question question = {asker->identity, item->server, item->kind, span_of(item->name), NULL};
    struct buf before_if = {0}, after_if = {0};
    enum policy_reach before = policy_reach(all->old, &question, &before_if);
    enum policy_reach after = policy_reach(all->new, &question, &after_if);
    bool changed = before == after && !span_equal(buf_span(&before_if), buf_span(&after_if));
    if (before != after || changed) {
        const char *sign = changed ? "~" : after > before ? "+" : "-";
        *(changed ? &all->changed : after > before ? &all->gained : &all->lost) += 1;
        json_array_append_new(all->rows, json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s*,s:s*}", "change", sign,
                                                   "tenant", asker->identity->tenant, "principal", asker->label,
                                                   "server", item->server, "kind", policy_kind_text(item->kind), "name",
                                                   item->name, "before", words[before], "after", words[after],
                                                   "conditions_before", before_if.len ? buf_text(&before_if) : NULL,
                                                   "conditions_after", after_if.len ? buf_text(&after_if) : NULL));
    }
    buf_release(&before_if);
    buf_release(&after_if);
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static void put_change(struct buf *out, const json_t *row)
{
    const char *before = text_of(row, "conditions_before"), *after = text_of(row, "conditions_after");
    buf_printf(out, "%s %s: %s %s %s: %s → %s", text_of(row, "change"), text_of(row, "tenant"), text_of(row, "server"),
               text_of(row, "kind"), text_of(row, "name"), text_of(row, "before"), text_of(row, "after"));
    if (*before || *after)
        buf_printf(out, " [%s → %s]", *before ? before : "none", *after ? after : "none");
}

// One line for each change, with all whom it is about.
static void print_rows(const json_t *rows)
{
    struct map seen = {0};
    struct buf *lines = mem_alloc((json_array_size(rows) + 1) * sizeof *lines);
    size_t i, count = 0;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        struct buf change = {0};
        put_change(&change, row);
        struct buf *line = map_find(&seen, buf_span(&change));
        if (!line) {
            line = &lines[count++];
            buf_put_span(line, buf_span(&change));
            map_put(&seen, buf_span(&change), line);
            buf_put_text(line, "\n    ");
        } else {
            buf_put_text(line, ", ");
        }
        buf_put_text(line, text_of(row, "principal"));
        buf_release(&change);
    }
    for (i = 0; i < count; i++) {
        puts(buf_text(&lines[i]));
        buf_release(&lines[i]);
    }
    free(lines);
    map_release(&seen);
}

static int report(const struct flags *flags, const struct comparison *all, bool whole)
{
    if (flags->json)
        policy_print(json_incref(all->rows));
    else
        print_rows(all->rows);
    if (!flags->json)
        printf("%zu gained, %zu lost, %zu with other conditions\n", all->gained, all->lost, all->changed);
    if (!whole)
        fprintf(stderr, "postern: policy diff: only the first %d things were compared\n", ITEMS_MAX);
    // Whether other conditions are wider is for people to say: it counts as new access, as does what was not looked at.
    return flags->fail_on_new_access && (all->gained || all->changed || !whole) ? EXIT_NEGATIVE : EXIT_OK;
}

static struct policy *open_side(const char *side, int *code)
{
    char *folder = strchr(side, ':') ? policy_checkout(side, code) : NULL;
    if (strchr(side, ':') && !folder)
        return NULL;
    struct policy *policy = policy_open(folder ? folder : side, code);
    if (folder)
        policy_checkout_remove(folder);
    free(folder);
    return policy;
}

int policy_diff(const struct flags *flags)
{
    int code = EXIT_OK;
    struct comparison all = {.rows = json_array()};
    struct policy_askers askers = {0};
    struct items items = {0};
    struct policy_inventory *inventory = flags->inventory ? policy_read_inventory(flags->inventory, &code) : NULL;
    all.old = code == EXIT_OK ? open_side(flags->args[1], &code) : NULL;
    all.new = all.old ? open_side(flags->args[2], &code) : NULL;
    if (all.new) {
        policy_askers_add(&askers, all.old, NULL);
        policy_askers_add(&askers, all.new, NULL);
        add_items(&items, all.old);
        add_items(&items, all.new);
        combine(&items);
        add_inventory(&items, inventory);
        for (size_t i = 0; i < askers.count; i++)
            for (size_t k = 0; k < items.count; k++)
                compare(&all, &askers.at[i], &items.at[k]);
        code = report(flags, &all, items.count < ITEMS_MAX);
    }
    items_release(&items);
    policy_inventory_free(inventory);
    policy_askers_release(&askers);
    policy_unref(all.old);
    policy_unref(all.new);
    json_decref(all.rows);
    return code;
}
