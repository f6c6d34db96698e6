// Tests the bounds of policies: size and depth (E6, E7, W12), bounds of a call (X8), and slow patterns (X21); and that compiled
// random rules decide like a rule-by-rule evaluation (X20).
#include "auth/policy/policy.h"
#include "auth/policy/uri.h"
#include "base/json.h"
#include "base/mem.h"
#include "draw.h"
#include "folder.h"
#include "slowly.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define RULE_HEAD "{\"id\":\"r\",\"effect\":\"allow\",\"description\":\"long enough to be one\","
#define DENY_HEAD "{\"id\":\"d\",\"effect\":\"deny\",\"description\":\"long enough to be one\","
#define SELECTORS "\"tenants\":[\"acme\"],\"subjects\":[\"role:a\"],\"servers\":[\"s\"],\"kinds\":[\"tool\"],"
#define FILE_HEAD "{\"version\":1,\"description\":\"a file of a test\","
#define RULES(rules) FILE_HEAD "\"rules\":[" rules "]}"

static struct policy *load_text(const char *text, struct policy_findings *findings)
{
    struct err err = {0};
    empty_directory();
    struct policy_load how = {.path = write_in_directory("p.json", text), .now = (int64_t)time(NULL)};
    return policy_load(&how, findings, &err);
}

static void put_rule(struct buf *out, int i)
{
    buf_printf(out,
               "%s{\"id\":\"r%d\",\"effect\":\"allow\",\"description\":\"one of many rules\"," SELECTORS
               "\"names\":[\"n%d\"]}",
               i ? "," : "", i, i);
}

// W12: 500 rules in a file are the most without a warning.
static void test_many_rules(void **state)
{
    (void)state;
    for (int rules = 500; rules <= 501; rules++) {
        struct buf text = {0};
        struct policy_findings findings = {0};
        buf_put_text(&text, FILE_HEAD "\"rules\":[");
        for (int i = 0; i < rules; i++)
            put_rule(&text, i);
        buf_put_text(&text, "]}");
        policy_unref(load_text(buf_text(&text), &findings));
        assert_int_equal(findings.count, rules == 501);
        assert_true(rules == 500 || strcmp(findings.at[0].code, "W12") == 0);
        policy_findings_release(&findings);
        buf_release(&text);
    }
}

// ---- policies that are too large ------------------------------------------------------------

// E6: each of the two groups of a level contains both groups of the next level, so there are 2^31 paths.
static void test_groups_explode(void **state)
{
    (void)state;
    struct buf text = {0};
    struct policy_findings findings = {0};
    buf_put_text(&text, FILE_HEAD "\"groups\":{");
    for (int i = 0; i < 31; i++)
        for (int side = 0; side < 2; side++)
            buf_printf(&text,
                       "%s\"g%d-%d\":{\"description\":\"one of two at its level\",\"members\":[\"group:g%d-0\","
                       "\"group:g%d-1\"]}",
                       i || side ? "," : "", i, side, i + 1, i + 1);
    for (int side = 0; side < 2; side++)
        buf_printf(&text, ",\"g31-%d\":{\"description\":\"the last level\",\"members\":[\"role:r%d\"]}", side, side);
    buf_put_text(&text,
                 "},\"rules\":[" RULE_HEAD "\"tenants\":[\"*\"],\"subjects\":[\"group:g0-0\"],\"servers\":[\"s\"],"
                 "\"kinds\":[\"tool\"],\"names\":[\"*\"]}]}");
    assert_null(load_text(buf_text(&text), &findings));
    assert_string_equal(findings.at[0].code, "E6");
    policy_findings_release(&findings);
    buf_release(&text);
}

static void test_too_large(void **state)
{
    (void)state;
    struct err err = {0};
    struct policy_findings findings = {0};
    char path[96], *big = malloc((10 << 20) + 1);
    memset(big, ' ', 10 << 20);
    big[10 << 20] = '\0';
    empty_directory();
    write_in_directory("big.json", big);
    free(big);
    snprintf(path, sizeof path, "%s/big.json", directory);
    struct policy_load how = {.path = path, .now = (int64_t)time(NULL)};
    assert_null(policy_load(&how, &findings, &err));
    assert_contains(err.detail, "big.json: E7 larger than 4194304 bytes; split it");
    policy_findings_release(&findings);
    // Nested too deeply.
    struct buf deep = {0};
    buf_put_text(&deep, FILE_HEAD "\"rules\":");
    for (int i = 0; i < 10000; i++)
        buf_put_char(&deep, '[');
    assert_null(load_text(buf_text(&deep), &findings));
    assert_string_equal(findings.at[0].code, "E7");
    policy_findings_release(&findings);
    buf_release(&deep);
    // With too many files the policy is refused as a whole, because a file left out may contain a deny.
    empty_directory();
    for (int i = 0; i <= 1000; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.json", i);
        write_in_directory(name, "{\"version\":1,\"description\":\"one of many files\"}");
    }
    how.path = directory;
    assert_null(policy_load(&how, &findings, &err));
    assert_contains(err.detail, "more than 1000 files");
    policy_findings_release(&findings);
    snprintf(path, sizeof path, "%s/1000.json", directory);
    assert_int_equal(unlink(path), 0);
    struct policy *policy = policy_load(&how, &findings, &err);
    assert_non_null(policy);
    policy_unref(policy);
    policy_findings_release(&findings);
}

// ---- X20: compiled and rule by rule ---------------------------------------------------------

static void put_random_rule(struct buf *out, int i)
{
    static const char *const subjects[] = {"role:a", "role:b", "user:corp:u1", "group:g", "authenticated", "*"};
    static const char *const servers[] = {"s", "t", "s*", "*"}, *const kinds[] = {"tool", "prompt", "*"};
    static const char *const names[] = {"get_a", "get_*", "*_a", "set:few", "a\\\\*", "g*t*a", "*"};
    static const char *const whens[] = {"", "", "", ",\"when\":{\"/x\":{\"eq\":1}}", ",\"when\":{\"/x\":{\"lt\":2}}"};
    const char *when = whens[draw(5)];
    buf_printf(
        out,
        "%s{\"id\":\"r%d\",\"effect\":\"%s\",\"description\":\"a rule by chance\",\"acknowledge\":\"open\","
        "\"tenants\":[\"%s\"],\"subjects\":[\"%s\"],\"servers\":[\"%s\"],\"kinds\":[\"%s\"],\"names\":[\"%s\"]%s}",
        i ? "," : "", i, draw(4) ? "allow" : "deny", draw(3) ? "acme" : "te*", subjects[draw(6)], servers[draw(4)],
        kinds[draw(*when ? 2 : 3)], names[draw(7)], when);
}

static void ask_random(struct policy_memo *memo, int *allowed)
{
    static const char *const names[] = {"get_a", "get_b", "put_a", "a*", "ax", "gta", ""};
    char *all[] = {(char[]){"a"}, (char[]){"b"}, (char[]){"c"}},
         *roles[] = {all[draw(3)], draw(2) ? all[draw(3)] : NULL, NULL};
    char subject[16];
    snprintf(subject, sizeof subject, draw(5) ? "corp:u%u" : "anonymous", draw(3));
    struct policy_test test = {.as = {draw(2) ? (char[]){"acme"} : (char[]){"team"}, subject, roles}};
    struct identity *who = policy_test_identity(&test);
    json_t *args = draw(3) ? json_pack(draw(2) ? "{s:i}" : "{s:b}", "x", (int)draw(3)) : NULL;
    struct policy_question question = {who, draw(2) ? "s" : "t", draw(2) ? POLICY_TOOL : POLICY_PROMPT,
                                       span_of(names[draw(7)]), args};
    enum verdict fast = policy_decide(memo, &question).verdict;
    assert_int_equal(fast, decide_slowly(policy_memo_policy(memo), &question));
    *allowed += fast == VERDICT_ALLOW;
    json_decref(args);
    identity_unref(who);
}

static void test_compiled_agrees(void **state)
{
    (void)state;
    int allowed = 0;
    for (int round = 0; round < 60; round++) {
        struct buf text = {0};
        struct policy_findings findings = {0};
        buf_put_text(&text, FILE_HEAD "\"groups\":{\"g\":{\"description\":\"some of them\",\"members\":[\"role:c\","
                                      "\"user:corp:u2\"]}},\"sets\":{\"few\":{\"description\":\"some names\",\"names\":"
                                      "[\"ax\",\"put_*\"]}},\"rules\":[");
        for (int i = 0; i < (int)draw(80) + 1; i++)
            put_random_rule(&text, i);
        buf_put_text(&text, "]}");
        struct policy *policy = load_text(buf_text(&text), &findings);
        assert_row(policy != NULL, findings.count ? findings.at[0].text : "");
        struct policy_memo *memo = policy_memo_new(policy);
        for (int i = 0; i < 200; i++)
            ask_random(memo, &allowed);
        policy_memo_free(memo);
        policy_unref(policy);
        policy_findings_release(&findings);
        buf_release(&text);
    }
    print_message("%d of 12000 allowed\n", allowed);
    assert_true(allowed > 500 && allowed < 11500);
}

// Every condition searches the arguments, so they may have 4096 keys at most. With more, no condition can be judged.
static void test_many_keys(void **state)
{
    (void)state;
    struct policy_findings findings = {0};
    struct policy *policy =
        load_text(RULES(RULE_HEAD SELECTORS "\"names\":[\"n\"],\"when\":{\"/k0\":{\"eq\":1}}}"), &findings);
    struct policy_memo *memo = policy_memo_new(policy);
    char *roles[] = {(char[]){"a"}, NULL};
    struct policy_test test = {.as = {(char[]){"acme"}, (char[]){"corp:u1"}, roles}};
    struct identity *who = policy_test_identity(&test);
    json_t *args = json_object();
    struct policy_question question = {who, "s", POLICY_TOOL, SPAN("n"), args};
    for (int i = 0; i <= 4096; i++) {
        char key[16];
        assert_true(i == 0 || policy_decide(memo, &question).verdict == VERDICT_ALLOW);
        snprintf(key, sizeof key, "k%d", i);
        json_object_set_new(args, key, json_integer(1));
    }
    assert_int_equal(policy_decide(memo, &question).verdict, VERDICT_DENY);
    json_decref(args);
    identity_unref(who);
    policy_memo_free(memo);
    policy_unref(policy);
    policy_findings_release(&findings);
}

// A name is as long as the caller likes, up to the length of the message.
static void test_long_names(void **state)
{
    (void)state;
    struct policy_findings findings = {0};
    struct policy *policy = load_text(RULES(RULE_HEAD SELECTORS "\"names\":[\"a*\"]}"), &findings);
    struct policy_memo *memo = policy_memo_new(policy);
    char *roles[] = {(char[]){"a"}, NULL}, *name = mem_alloc(POLICY_URI_MAX + 1);
    struct policy_test test = {.as = {(char[]){"acme"}, (char[]){"corp:cat"}, roles}};
    struct identity *who = policy_test_identity(&test);
    memset(name, 'a', POLICY_URI_MAX + 1);
    for (size_t more = 0; more <= 1; more++) {
        struct policy_question question = {who, "s", POLICY_TOOL, span_make(name, POLICY_URI_MAX + more), NULL};
        assert_int_equal(policy_decide(memo, &question).verdict, more ? VERDICT_DENY : VERDICT_ALLOW);
        assert_int_equal(policy_visible(memo, &question), !more);
        assert_int_equal(policy_rule_matches(policy, policy_rule_at(policy, 0), &question, true, NULL, NULL), !more);
    }
    free(name);
    identity_unref(who);
    policy_memo_free(memo);
    policy_unref(policy);
    policy_findings_release(&findings);
}

// X21: a glob that takes exponential time with backtracking takes the length of the pattern times that of the text.
static void test_bad_globs(void **state)
{
    (void)state;
    struct buf pattern = {0}, name = {0}, text = {0};
    struct policy_findings findings = {0};
    for (int i = 0; i < 200; i++)
        buf_put_text(&pattern, "*a");
    buf_put_text(&pattern, "*b");
    for (int i = 0; i < POLICY_URI_MAX; i++)
        buf_put_char(&name, 'a');
    buf_printf(&text, RULES(RULE_HEAD SELECTORS "\"names\":[\"%s\"]}"), buf_text(&pattern));
    struct policy *policy = load_text(buf_text(&text), &findings);
    assert_non_null(policy);
    struct policy_memo *memo = policy_memo_new(policy);
    char *roles[] = {(char[]){"a"}, NULL};
    struct policy_test test = {.as = {(char[]){"acme"}, (char[]){"corp:cat"}, roles}};
    struct identity *who = policy_test_identity(&test);
    struct policy_question question = {who, "s", POLICY_TOOL, buf_span(&name), NULL};
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_int_equal(policy_decide(memo, &question).verdict, VERDICT_DENY);
    clock_gettime(CLOCK_MONOTONIC, &end);
    assert_true(end.tv_sec - begin.tv_sec < 5);
    name.at[name.len - 1] = 'b';
    assert_int_equal(policy_decide(memo, &question).verdict, VERDICT_ALLOW);
    identity_unref(who);
    policy_memo_free(memo);
    policy_unref(policy);
    policy_findings_release(&findings);
    buf_release(&pattern);
    buf_release(&name);
    buf_release(&text);
}

// X21: conditions that would take too much work cannot be judged, so the allow does not match and the deny does.
static void test_too_much_work(void **state)
{
    (void)state;
    enum { CONDITIONS = 100, LENGTH = 1 << 20, EACH = 16 };
    struct buf any = {0}, text = {0}, value = {0};
    for (int i = 0; i < CONDITIONS; i++)
        buf_printf(&any, "%s{\"/x\":{\"glob\":\"*aaaaaaab%d*\"}},{\"/y\":{\"some\":{\"glob\":\"*ab%d*\"}}}",
                   i ? "," : "", i, i);
    for (int i = 0; i < LENGTH; i++)
        buf_put_char(&value, 'a');
    json_t *list = json_array();
    for (int i = 0; i < EACH; i++)
        json_array_append_new(list, json_stringn(value.at, value.len / EACH));
    json_t *large = json_pack("{s:s%,s:O}", "x", value.at, value.len, "y", list);
    json_t *small = json_pack("{s:s,s:[]}", "x", "caaaaaaab99c", "y");
    char *roles[] = {(char[]){"a"}, NULL};
    struct policy_test test = {.as = {(char[]){"acme"}, (char[]){"corp:cat"}, roles}};
    struct identity *who = policy_test_identity(&test);
    for (int deny = 0; deny < 2; deny++) {
        struct policy_findings findings = {0};
        buf_clear(&text);
        if (deny)
            buf_printf(&text,
                       RULES(RULE_HEAD SELECTORS "\"names\":[\"n\"]}," DENY_HEAD SELECTORS
                                                 "\"names\":[\"n\"],\"when\":{\"any\":[%s]}}"),
                       buf_text(&any));
        else
            buf_printf(&text, RULES(RULE_HEAD SELECTORS "\"names\":[\"n\"],\"when\":{\"any\":[%s]}}"), buf_text(&any));
        struct policy *policy = load_text(buf_text(&text), &findings);
        assert_non_null(policy);
        struct policy_memo *memo = policy_memo_new(policy);
        struct policy_question question = {who, "s", POLICY_TOOL, SPAN("n"), large};
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        assert_int_equal(policy_decide(memo, &question).verdict, VERDICT_DENY);
        clock_gettime(CLOCK_MONOTONIC, &end);
        assert_true(end.tv_sec - begin.tv_sec < 5);
        question.args = small;
        assert_int_equal(policy_decide(memo, &question).verdict, deny ? VERDICT_DENY : VERDICT_ALLOW);
        policy_memo_free(memo);
        policy_unref(policy);
        policy_findings_release(&findings);
    }
    json_decref(list);
    json_decref(large);
    json_decref(small);
    identity_unref(who);
    buf_release(&any);
    buf_release(&text);
    buf_release(&value);
}

int main(void)
{
#define TEST(name, function) {name, function, make_directory, remove_directory, NULL},
    // clang-format off
    const struct CMUnitTest tests[] = {
        TEST("W12 more than 500 rules in a file are a warning", test_many_rules)
        TEST("E6 groups with exponentially many paths are refused in time", test_groups_explode)
        TEST("E7 a policy that is too large, too deep or in too many files is refused", test_too_large)
        TEST("X20 compiled rules decide like rules asked one by one", test_compiled_agrees)
        TEST("X8 arguments with too many keys for a condition are denied", test_many_keys)
        TEST("X8 a name longer than any rule accepts is denied", test_long_names)
        TEST("X21 a pattern made to be slow is matched in time", test_bad_globs)
        TEST("X21 a call whose conditions would take too much work is denied", test_too_much_work)
    };
    // clang-format on
    return cmocka_run_group_tests(tests, NULL, NULL);
}
