// Owns `postern policy check` and `coverage`: printing findings, and the coverage of rules by tests.
#include "base/clock.h"
#include "base/mem.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "config/policy_names.h"
#include "subcommands.h"
#include <stdio.h>
#include <stdlib.h>

static json_t *finding_json(const struct policy_finding *finding)
{
    json_t *line = finding->line ? json_integer(finding->line) : json_null();
    size_t pointer = finding->text[0] == '/' ? strcspn(finding->text, ": ") : 0;
    json_t *where = pointer ? json_stringn(finding->text, pointer) : json_null();
    return json_pack("{s:s,s:s,s:s,s:o,s:s?,s:o,s:s}", "code", finding->code, "severity",
                     finding->code[0] == 'E' ? "error" : "warning", "file", finding->file, "line", line, "rule",
                     finding->rule, "pointer", where, "text", finding->text);
}

// ---- coverage by tests ----------------------------------------------------------------------

// The coverage of one rule: a test that it matches, and a test that fails only its condition.
struct exercise {
    bool matched, kept_out;
};

static struct exercise exercise_rule(const struct policy *policy, const struct policy_rule *rule)
{
    struct exercise all = {0};
    for (size_t i = 0; i < policy_test_count(policy); i++) {
        const struct policy_test *test = policy_test_at(policy, i);
        struct identity *who = policy_test_identity(test);
        struct policy_question question = {who, test->server, (enum policy_kind)test->kind, span_of(test->name),
                                           test->args};
        struct buf why = {0};
        bool asked = policy_is_canonical(&question);
        if (asked && policy_rule_matches(policy, rule, &question, true, &why, NULL))
            all.matched = true;
        else if (span_starts(buf_span(&why), "when "))
            all.kept_out = true;
        buf_release(&why);
        identity_unref(who);
    }
    return all;
}

static struct policy_finding about_rule(const struct policy_rule *rule, const char *code, const char *text)
{
    struct buf pointed = {0};
    buf_printf(&pointed, "/rules/%zu: %s", rule->at, text);
    struct policy_finding finding = {.file = mem_string(rule->file),
                                     .line = rule->line,
                                     .rule = mem_string(rule->id),
                                     .text = buf_take(&pointed, NULL)};
    snprintf(finding.code, sizeof finding.code, "%s", code);
    return finding;
}

// W3 and W4: rules that the tests do not cover.
static void find_untested(const struct policy *policy, struct policy_findings *findings)
{
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        struct exercise exercise = exercise_rule(policy, rule);
        bool expired = rule->expires_at && rule->expires_at <= clock_wall_s();
        findings->at = mem_resize(findings->at, (findings->count + 2) * sizeof *findings->at);
        if (!exercise.matched && !expired)
            findings->at[findings->count++] =
                about_rule(rule, "W3", "the tests do not exercise the rule; add a test that it matches");
        if (rule->effect && rule->when && !exercise.kept_out && !expired)
            findings->at[findings->count++] = about_rule(
                rule, "W4",
                "the tests do not include a call that fails the condition of the rule; add one that expects a deny");
    }
}

// ---- check ----------------------------------------------------------------------------------

// The inputs of a check besides the policy; owns its members.
struct check_inputs {
    struct config *config;
    struct policy_names names;
    struct policy_inventory *inventory, *before;
};

// False: the error was printed and the exit code set.
static bool read_inputs(const struct flags *flags, struct check_inputs *inputs, int *exit_code)
{
    if (flags->inventory_before && !flags->inventory) {
        *exit_code = fail_with(EXIT_USAGE, "policy check: --inventory-before needs --inventory, the current inventory");
        return false;
    }
    if (flags->config && !(inputs->config = configuration_load(flags, exit_code)))
        return false;
    if (inputs->config)
        inputs->names = policy_names_of(inputs->config, flags->args[1]);
    return (!flags->inventory || (inputs->inventory = policy_open_inventory(flags->inventory, exit_code))) &&
           (!flags->inventory_before || (inputs->before = policy_open_inventory(flags->inventory_before, exit_code)));
}

static void release_inputs(struct check_inputs *inputs)
{
    policy_names_release(&inputs->names);
    policy_inventory_free(inputs->inventory);
    policy_inventory_free(inputs->before);
    config_unref(inputs->config);
}

static void print_findings(const struct flags *flags, const struct policy_findings *findings,
                           const struct policy *policy)
{
    json_t *all = json_array();
    for (size_t i = 0; i < findings->count; i++) {
        if (flags->json)
            json_array_append_new(all, finding_json(&findings->at[i]));
        else
            policy_open_print_finding(stdout, &findings->at[i]);
    }
    if (flags->json)
        output_json(json_incref(all));
    else if (policy)
        printf("%s: ok, %zu rule%s, %zu test%s, %zu warning%s, digest %.16s\n", flags->args[1],
               policy_rule_count(policy), policy_rule_count(policy) == 1 ? "" : "s", policy_test_count(policy),
               policy_test_count(policy) == 1 ? "" : "s", findings->count, findings->count == 1 ? "" : "s",
               policy_digest(policy));
    else
        printf("%s: %zu error%s, %zu warning%s\n", flags->args[1], findings->errors, findings->errors == 1 ? "" : "s",
               findings->count - findings->errors, findings->count - findings->errors == 1 ? "" : "s");
    json_decref(all);
}

int policy_check(const struct flags *flags)
{
    struct err err = {0};
    struct policy_findings findings = {0};
    struct check_inputs inputs = {0};
    int code = EXIT_OK;
    if (!read_inputs(flags, &inputs, &code)) {
        release_inputs(&inputs);
        return code;
    }
    struct policy_load load = {.path = flags->args[1],
                               .now = clock_wall_s(),
                               .servers = inputs.names.servers,
                               .tenants = inputs.names.tenants,
                               .providers = inputs.names.providers,
                               .inventory = inputs.inventory,
                               .before = inputs.before};
    struct policy *policy = policy_load(&load, &findings, &err);
    if (policy)
        find_untested(policy, &findings);
    if (!policy && !findings.errors) {
        code = fail_with_err(&err);
        if (flags->json)
            output_json(
                json_pack("[o]", finding_json(&(struct policy_finding){
                                     .code = "E7", .file = (char *)(uintptr_t)flags->args[1], .text = err.detail})));
    } else {
        print_findings(flags, &findings, policy);
        code = findings.errors ? EXIT_NEGATIVE : EXIT_OK;
    }
    policy_unref(policy);
    policy_findings_release(&findings);
    release_inputs(&inputs);
    return code;
}

// ---- coverage -------------------------------------------------------------------------------

int policy_check_coverage(const struct flags *flags)
{
    int code = EXIT_OK;
    struct policy *policy = policy_open(flags->args[1], flags->args[1], &code);
    if (!policy)
        return code;
    size_t count = policy_rule_count(policy), exercised = 0;
    json_t *missing = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        if (exercise_rule(policy, rule).matched) {
            exercised++;
            continue;
        }
        json_array_append_new(missing,
                              json_pack("{s:s,s:s,s:i}", "id", rule->id, "file", rule->file, "line", rule->line));
        if (!flags->json)
            printf("%s:%d: %s\n", rule->file, rule->line, rule->id);
    }
    double percent = count ? 100.0 * (double)exercised / (double)count : 100;
    if (flags->json)
        output_json(json_pack("{s:I,s:I,s:I,s:f,s:O}", "rules", (json_int_t)count, "exercised", (json_int_t)exercised,
                              "tests", (json_int_t)policy_test_count(policy), "percent", percent, "missing", missing));
    else
        printf("%zu of %zu rule%s exercised by %zu test%s (%.1f%%)\n", exercised, count, count == 1 ? "" : "s",
               policy_test_count(policy), policy_test_count(policy) == 1 ? "" : "s", percent);
    json_decref(missing);
    policy_unref(policy);
    return exercised == count ? EXIT_OK : EXIT_NEGATIVE;
}
