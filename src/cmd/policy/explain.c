// Owns `postern policy explain` and `who-can`: one question for every rule, and for every caller.
#include "auth/policy/uri.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "subcommands.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const effects[] = {"deny", "allow"};

// ---- the question ---------------------------------------------------------------------------

// --server with one of --tool, --resource, --template, --prompt, and --args. False: a usage error was printed.
static bool read_question(const struct flags *flags, struct policy_question *out, json_t **args)
{
    const char *const names[POLICY_KINDS] = {flags->tool, flags->resource, flags->template, flags->prompt};
    struct err err = {0};
    int given = 0;
    for (int i = 0; i < POLICY_KINDS; i++)
        if (names[i]) {
            out->kind = (enum policy_kind)i;
            out->name = span_of(names[i]);
            given++;
        }
    if (!flags->server || given != 1) {
        (void)fail_with(EXIT_USAGE, "policy %s: give --server and one of --tool, --resource, --template and --prompt",
                        flags->args[0]);
        return false;
    }
    out->server = flags->server;
    *args = flags->arguments ? json_parse_arguments(span_of(flags->arguments), "--args", &err) : NULL;
    if (flags->arguments && !json_is_object(*args)) {
        (void)fail_with(EXIT_USAGE, "policy %s: --args must be a JSON object%s%s", flags->args[0], *args ? "" : ": ",
                        *args ? "" : err.detail);
        json_decref(*args);
        return false;
    }
    out->args = *args;
    return true;
}

static struct identity *read_identity(const struct flags *flags)
{
    const char *subject = flags->subject, *colon = subject ? strchr(subject, ':') : NULL;
    bool anonymous = subject && strcmp(subject, "anonymous") == 0;
    if (!anonymous && (!colon || colon == subject || !colon[1])) {
        (void)fail_with(EXIT_USAGE, "policy explain: --subject must be PROVIDER:NAME or anonymous");
        return NULL;
    }
    struct policy_test test = {.as = {.tenant = (char *)(uintptr_t)flags->tenant,
                                      .subject = (char *)(uintptr_t)subject,
                                      .roles = (char **)(uintptr_t)flags->role}};
    return policy_test_identity(&test);
}

// ---- explain --------------------------------------------------------------------------------

// Widens the selector that failed, in a copy of the rule.
static void widen(struct policy_rule *rule, const char *failed)
{
    static char star[] = "*";
    static char *everything[] = {star, NULL};
    const struct {
        const char *name;
        char ***list;
    } selectors[] = {{"tenants", &rule->tenants},
                     {"subjects", &rule->subjects},
                     {"servers", &rule->servers},
                     {"kinds", &rule->kinds},
                     {"names", &rule->names}};
    for (size_t i = 0; i < sizeof selectors / sizeof *selectors; i++)
        if (strcmp(failed, selectors[i].name) == 0)
            *selectors[i].list = everything;
    if (strcmp(failed, "expired") == 0)
        rule->expires_at = 0;
    if (strncmp(failed, "when ", 5) == 0)
        rule->when = NULL;
}

// Would the rule allow the call if one selector were wider?
static bool is_near(const struct policy *policy, const struct policy_rule *rule, const struct policy_question *question,
                    const char *failed)
{
    struct policy_rule wide = *rule;
    widen(&wide, failed);
    return rule->effect && !rule->mode && policy_rule_matches(policy, &wide, question, true, NULL, NULL);
}

struct explanation {
    struct policy_decision decision;
    json_t *rules;
    const struct policy_rule *nearest;
    char *canonical;  // the canonical spelling of the URI if it differs; or NULL
};

static struct explanation explain(struct policy *policy, const struct policy_question *question, bool redact)
{
    struct policy_memo *memo = policy_memo_new(policy);
    struct explanation all = {.decision = policy_decide(memo, question), .rules = json_array()};
    policy_memo_free(memo);
    bool defaulted = strcmp(all.decision.by, "default") == 0;
    struct buf canonical = {0};
    bool asked = policy_is_canonical(question);
    if (!asked && policy_uri_put_canonical(question->name, question->kind == POLICY_TEMPLATE, &canonical))
        all.canonical = buf_take(&canonical, NULL);
    for (size_t i = 0; asked && i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        struct buf why = {0}, via = {0};
        bool matched = policy_rule_matches(policy, rule, question, redact, &why, &via);
        json_t *row = json_pack("{s:s,s:s,s:b}", "id", rule->id, "effect", effects[rule->effect], "matched", matched);
        if (rule->mode)
            json_object_set_new(row, "mode", json_string("shadow"));
        if (!matched)
            json_object_set_new(row, "failed", json_string(buf_text(&why)));
        if (via.len)
            json_object_set_new(row, "via", json_string(buf_text(&via)));
        json_array_append_new(all.rules, row);
        if (defaulted && !matched && !all.nearest && is_near(policy, rule, question, buf_text(&why)))
            all.nearest = rule;
        buf_release(&why);
        buf_release(&via);
    }
    return all;
}

static void print_explanation(const struct explanation *all, const struct policy *policy, const struct identity *who)
{
    size_t i;
    json_t *row;
    const struct policy_rule *rule = all->decision.rule;
    printf("%s by %s", effects[all->decision.verdict], all->decision.by);
    if (rule)
        printf(" (%s:%d: %s)", rule->file, rule->line, rule->description);
    else if (strcmp(all->decision.by, "default") == 0)
        printf(" (no rule allows it)");
    else if (all->canonical)
        printf(" (canonical spelling: %s)", all->canonical);
    printf("\npolicy %s\ncaller %s:%s of tenant %s%s", policy_digest(policy), who->provider, who->subject, who->tenant,
           who->role_count ? ", roles" : ", no roles");
    for (i = 0; i < who->role_count; i++)
        printf(" %s", who->roles[i]);
    printf("\n\n");
    json_array_foreach(all->rules, i, row) {
        const char *failed = json_string_value(json_object_get(row, "failed"));
        const char *via = json_string_value(json_object_get(row, "via"));
        bool shadow = json_object_get(row, "mode") != NULL;
        printf("  %-5s %s: %s%s%s%s%s%s\n", json_string_value(json_object_get(row, "effect")),
               json_string_value(json_object_get(row, "id")), failed ? "does not match: " : "matches",
               failed ? failed : "", via ? " (" : "", via ? via : "", via ? ")" : "",
               shadow ? " [shadow: never decides]" : "");
    }
    if (all->nearest)
        printf("\nnearest: %s (%s:%d) fails on one selector only\n", all->nearest->id, all->nearest->file,
               all->nearest->line);
}

static json_t *explanation_json(const struct explanation *all, const struct policy *policy)
{
    const struct policy_rule *rule = all->decision.rule;
    json_t *line = rule && rule->line ? json_integer(rule->line) : json_null();
    return json_pack("{s:s,s:s,s:s,s:s?,s:o,s:O,s:s?,s:s*}", "decision", effects[all->decision.verdict], "rule",
                     all->decision.by, "policy_digest", policy_digest(policy), "file", rule ? rule->file : NULL, "line",
                     line, "rules", all->rules, "nearest", all->nearest ? all->nearest->id : NULL, "canonical",
                     all->canonical);
}

int policy_explain(const struct flags *flags)
{
    int code = EXIT_OK;
    json_t *args = NULL;
    struct policy_question question = {0};
    struct identity *who = read_identity(flags);
    if (!who)
        return EXIT_USAGE;
    question.identity = who;
    if (!read_question(flags, &question, &args)) {
        identity_unref(who);
        return EXIT_USAGE;
    }
    struct policy *policy = policy_open(flags->policy, flags->policy, &code);
    if (policy) {
        struct explanation all = explain(policy, &question, !flags->show_args);
        if (flags->json)
            output_json(explanation_json(&all, policy));
        else
            print_explanation(&all, policy, who);
        code = all.decision.verdict == VERDICT_ALLOW ? EXIT_OK : EXIT_NEGATIVE;
        json_decref(all.rules);
        free(all.canonical);
    }
    policy_unref(policy);
    json_decref(args);
    identity_unref(who);
    return code;
}

// ---- who can --------------------------------------------------------------------------------

static void answer_for(struct policy_memo *memo, struct policy_question *question, const struct policy_asker *asker,
                       struct table *table, json_t *all)
{
    struct buf conditions = {0};
    question->identity = asker->identity;
    struct policy_decision decision = policy_decide(memo, question);
    const char *verdict = effects[decision.verdict];
    // Without arguments, the verdict may depend on them.
    if (!question->args && policy_askers_extent(memo, question, &conditions) == EXTENT_SOME)
        verdict = "depends";
    json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:s,s:s*}", "tenant", asker->identity->tenant, "principal",
                                         asker->label, "verdict", verdict, "rule", decision.by, "conditions",
                                         conditions.len ? buf_text(&conditions) : NULL));
    struct buf reason = {0};
    buf_put_text(&reason, strcmp(verdict, "depends") == 0 ? buf_text(&conditions) : decision.by);
    table_add(table,
              (const char *const[TABLE_COLUMNS]){asker->identity->tenant, asker->label, verdict, buf_text(&reason)});
    buf_release(&reason);
    buf_release(&conditions);
}

int policy_explain_who_can(const struct flags *flags)
{
    static const char *const titles[TABLE_COLUMNS + 1] = {"TENANT", "SUBJECT", "VERDICT", "RULE OR CONDITION", NULL};
    int code = EXIT_OK;
    json_t *args = NULL, *all = json_array();
    struct policy_question question = {0};
    struct policy_askers askers = {0};
    struct table table = {.titles = titles};
    if (!read_question(flags, &question, &args)) {
        json_decref(all);
        return EXIT_USAGE;
    }
    struct policy *policy = policy_open(flags->policy, flags->policy, &code);
    struct policy_memo *memo = policy ? policy_memo_new(policy) : NULL;
    if (policy)
        policy_askers_add(&askers, policy, NULL, flags->tenant);
    for (size_t i = 0; i < askers.count; i++)
        answer_for(memo, &question, &askers.at[i], &table, all);
    if (policy && flags->json)
        output_json(json_incref(all));
    else if (policy)
        table_print(&table);
    table_release(&table);
    policy_askers_release(&askers);
    policy_memo_free(memo);
    policy_unref(policy);
    json_decref(args);
    json_decref(all);
    return code;
}
