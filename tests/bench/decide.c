// Measures one decision of the policy with 10, 1,000, 5,000 and 10,000 rules; prints a line of JSON for each.
//
// Four callers with four roles each ask in turn for a few names of two servers; half of the decisions are to allow. The
// figure is the median of the rounds. `same_ns` is that of a single caller that repeats its question, and `p99_ns` is
// taken from decisions that are timed one by one.
#include "auth/policy/policy.h"
#include "base/buf.h"
#include "rounds.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 9, DECISIONS = 20000, CALLERS = 4 };

static const char *const names[] = {"get_1_x", "get_7_x", "tool_21", "other"};

static void put_rules(struct buf *out, int rules)
{
    buf_put_text(out, "{\"version\":1,\"description\":\"Many rules, to be measured\",\"rules\":[");
    for (int i = 0; i < rules; i++)
        buf_printf(out,
                   "%s{\"id\":\"r%d\",\"effect\":\"%s\",\"description\":\"one of many rules\",\"tenants\":[\"%s\"],"
                   "\"subjects\":[\"role:r%d\",\"user:corp:u%d\"],\"servers\":[\"s%d\"],\"kinds\":[\"tool\"],"
                   "\"names\":[\"get_%d_*\",\"tool_%d\"]}",
                   i ? ",\n" : "", i, i % 10 == 9 ? "deny" : "allow", i % 3 ? "acme" : "*", i % 50, i, i % 20, i % 100,
                   i);
    buf_put_text(out, "]}");
}

static struct policy *load(int rules)
{
    char path[] = "/tmp/postern-decide-XXXXXX";
    struct buf text = {0};
    struct err err = {0};
    struct policy_findings findings = {0};
    struct policy_load how = {.path = path, .now = (int64_t)time(NULL)};
    struct policy *policy = NULL;
    put_rules(&text, rules);
    int fd = mkstemp(path);
    if (fd >= 0 && write(fd, text.at, text.len) == (ssize_t)text.len)
        policy = policy_load(&how, &findings, &err);
    if (!policy)
        fprintf(stderr, "bench_decide: %s\n", fd < 0 ? "no temporary file" : err.detail);
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    policy_findings_release(&findings);
    buf_release(&text);
    return policy;
}

static struct identity *caller(int number)
{
    char subject[16];
    static const char *const roles[] = {"r1", "r7", "r21", "eng"};
    snprintf(subject, sizeof subject, "u%d", number);
    struct identity *who = identity_new(IDENTITY_BEARER, "acme", "corp", subject);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        identity_add_role(who, span_of(roles[i]));
    return who;
}

static enum verdict ask(struct policy_memo *memo, const struct identity *who, int i)
{
    struct policy_question question = {who, i % 2 ? "s7" : "s1", POLICY_TOOL, span_of(names[i % 4]), NULL};
    return policy_decide(memo, &question).verdict;
}

// The median over the rounds, in nanoseconds a decision.
static int64_t measure(struct policy_memo *memo, struct identity *const *callers, int count, int *allowed)
{
    int64_t rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = now_ns();
        for (int i = 0; i < DECISIONS; i++)
            *allowed += ask(memo, callers[i % count], i) == VERDICT_ALLOW;
        rounds[round] = (now_ns() - start) / DECISIONS;
    }
    return percentile(rounds, ROUNDS, 50);
}

static int64_t measure_p99(struct policy_memo *memo, struct identity *const *callers)
{
    static int64_t each[DECISIONS];
    for (int i = 0; i < DECISIONS; i++) {
        int64_t start = now_ns();
        (void)ask(memo, callers[i % CALLERS], i);
        each[i] = now_ns() - start;
    }
    return percentile(each, DECISIONS, 99);
}

static bool report(int rules)
{
    struct identity *callers[CALLERS];
    int allowed = 0;
    struct policy *policy = load(rules);
    if (!policy)
        return false;
    struct policy_memo *memo = policy_memo_new(policy);
    for (int i = 0; i < CALLERS; i++)
        callers[i] = caller(i);
    long long turns = measure(memo, callers, CALLERS, &allowed), same = measure(memo, callers, 1, &allowed),
              p99 = measure_p99(memo, callers);
    for (int i = 0; i < CALLERS; i++)
        identity_unref(callers[i]);
    policy_memo_free(memo);
    policy_unref(policy);
    printf("{\"rules\":%d,\"ns\":%lld,\"same_ns\":%lld,\"p99_ns\":%lld}\n", rules, turns, same, p99);
    // A policy that always gives the same verdict would distort the figure.
    return allowed > 0 && allowed < 2 * ROUNDS * DECISIONS;
}

int main(void)
{
    static const int sizes[] = {10, 1000, 5000, 10000};
    bool ok = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ok = report(sizes[i]) && ok;
    return ok ? 0 : 1;
}
