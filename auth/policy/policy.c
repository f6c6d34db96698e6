// Owns the compiled policy: one bit for each rule, bitsets for each selector, and the decision.
//
// A question is answered by ANDing four sets: rules about the caller (its principals and its tenant), the server, the
// kind and the name. The remaining rules are evaluated one by one, denies first; only these evaluate conditions.
// The sets of server names and item names are computed once for each name and kept in a memo; the caller's set is kept
// until another caller asks. A memo belongs to the code that asks. The policy itself does not change after it was loaded.
// policy_rule_matches() computes the same rule by rule, slowly and with reasons; tests/unit/auth/policy/policy_test.c
// compares the two.
#include "auth/policy/policy.h"
#include "base/clock.h"
#include "base/glob.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/secret.h"
#include "condition.h"
#include "source.h"
#include "uri_form.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NAME_CACHE_MAX 8192
#define NAME_CACHED_BYTES 512  // longer names are evaluated each time: callers choose their length
#define GROUP_DEPTH_MAX 32

typedef uint64_t word;

struct pattern {
    const char *glob;
    word *bits;
};

// One selector dimension: exact texts, patterns, and the rules that say "*".
struct index {
    struct map exact;  // text -> word *
    struct pattern *patterns;
    size_t pattern_count;
    word *all;
};

// The results for texts that were asked about.
struct answers {
    struct map cache;  // text -> word *: exact, patterns and all together
    word *uncached;
};

struct policy {
    unsigned refs;
    bool allow_all;
    char digest[65];
    struct policy_source source;
    struct policy_rule **rules;
    size_t count, words;
    struct policy_test **tests;
    size_t test_count;
    struct index tenants, subjects, servers, names;
    word *kinds[POLICY_KINDS];
    int64_t loaded_at;  // the time that the expiry of its rules was checked against
};

struct policy_memo {
    struct policy *policy;
    struct answers tenants, servers, names;
    word *deny, *allow, *shadow, *conditional;  // the rules in force now, without expired ones
    bool shadows, has_conditions;               // whether there are any of them
    int64_t next_expiry;
    word *scratch;
    word *caller;             // rules about the principals and the tenant
    struct identity *asking;  // the caller that `caller` is for: often the same caller asks again
};

static word *bits_new(const struct policy *policy) { return mem_alloc((policy->words + 1) * sizeof(word)); }
static void bits_set(word *bits, size_t i) { bits[i / 64] |= (word)1 << (i % 64); }

static void bits_or(word *to, const word *from, size_t words)
{
    for (size_t i = 0; from && i < words; i++)
        to[i] |= from[i];
}

static void bits_and(word *to, const word *from, size_t words)
{
    for (size_t i = 0; i < words; i++)
        to[i] &= from[i];
}

// ---- indexes --------------------------------------------------------------------------------

static void index_exact(const struct policy *policy, struct index *index, struct span text, size_t rule)
{
    word *bits = map_find(&index->exact, text);
    if (!bits) {
        bits = bits_new(policy);
        map_put(&index->exact, text, bits);
    }
    bits_set(bits, rule);
}

static void index_pattern(const struct policy *policy, struct index *index, const char *glob, size_t rule)
{
    for (size_t i = 0; i < index->pattern_count; i++)
        if (strcmp(index->patterns[i].glob, glob) == 0) {
            bits_set(index->patterns[i].bits, rule);
            return;
        }
    index->patterns = mem_resize(index->patterns, (index->pattern_count + 1) * sizeof *index->patterns);
    index->patterns[index->pattern_count] = (struct pattern){glob, bits_new(policy)};
    bits_set(index->patterns[index->pattern_count++].bits, rule);
}

static void index_add(const struct policy *policy, struct index *index, const char *text, size_t rule)
{
    if (strcmp(text, "*") == 0) {
        bits_set(index->all, rule);
    } else if (glob_is_literal(text)) {
        char *plain = mem_alloc(strlen(text) + 1);
        index_exact(policy, index, glob_unescape(text, plain, strlen(text)), rule);
        free(plain);
    } else {
        index_pattern(policy, index, text, rule);
    }
}

static void cache_clear(struct map *cache)
{
    void *value;
    for (size_t at = 0; map_next(cache, &at, NULL, &value);)
        free(value);
    map_release(cache);
}

// The rules whose selector matches this text. A text longer than any URI may be matches none: callers choose its length,
// and every pattern would scan all of it.
static const word *index_find(const struct policy *policy, const struct index *index, struct answers *answers,
                              struct span text)
{
    if (text.len > POLICY_URI_MAX)
        return memset(answers->uncached, 0, policy->words * sizeof(word));
    bool keep = text.len <= NAME_CACHED_BYTES;
    word *bits = keep ? map_find(&answers->cache, text) : NULL;
    if (bits)
        return bits;
    bits = keep ? bits_new(policy) : answers->uncached;
    memcpy(bits, index->all, policy->words * sizeof *bits);
    bits_or(bits, map_find(&index->exact, text), policy->words);
    for (size_t i = 0; i < index->pattern_count; i++)
        if (glob_match(index->patterns[i].glob, text))
            bits_or(bits, index->patterns[i].bits, policy->words);
    if (!keep)
        return bits;
    if (answers->cache.count >= NAME_CACHE_MAX)
        cache_clear(&answers->cache);
    map_put(&answers->cache, text, bits);
    return bits;
}

static void index_release(struct index *index)
{
    cache_clear(&index->exact);
    for (size_t i = 0; i < index->pattern_count; i++)
        free(index->patterns[i].bits);
    free(index->patterns);
    free(index->all);
}

// ---- compiling ------------------------------------------------------------------------------

static void add_subject(const struct policy *policy, struct index *index, const char *subject, size_t rule, int depth)
{
    if (strncmp(subject, "group:", 6) != 0) {
        if (strcmp(subject, "*") == 0)
            bits_set(index->all, rule);
        else
            index_exact(policy, index, span_of(subject), rule);
        return;
    }
    const struct policy_group *group = policy_source_group(&policy->source, subject + 6);
    for (char **member = group && depth < GROUP_DEPTH_MAX ? group->members : NULL; member && *member; member++)
        add_subject(policy, index, *member, rule, depth + 1);
}

static void add_name(const struct policy *policy, struct index *index, const char *name, size_t rule)
{
    const struct policy_set *set = strncmp(name, "set:", 4) == 0 ? policy_source_set(&policy->source, name + 4) : NULL;
    if (!set) {
        index_add(policy, index, name, rule);
        return;
    }
    for (char **member = set->names; *member; member++)
        index_add(policy, index, *member, rule);
}

static void compile_rule(struct policy *policy, size_t i)
{
    const struct policy_rule *rule = policy->rules[i];
    enum policy_kind kind;
    for (char **text = rule->tenants; *text; text++)
        index_add(policy, &policy->tenants, *text, i);
    for (char **text = rule->subjects; *text; text++)
        add_subject(policy, &policy->subjects, *text, i, 0);
    for (char **text = rule->servers; *text; text++)
        index_add(policy, &policy->servers, *text, i);
    for (char **text = rule->names; *text; text++)
        add_name(policy, &policy->names, *text, i);
    for (char **text = rule->kinds; *text; text++)
        for (int k = 0; k < POLICY_KINDS; k++)
            if (strcmp(*text, "*") == 0 || (policy_kind_parse(*text, &kind) && (int)kind == k))
                bits_set(policy->kinds[k], i);
}

static void compile(struct policy *policy)
{
    struct index *const indexes[] = {&policy->tenants, &policy->subjects, &policy->servers, &policy->names};
    policy->words = (policy->count + 63) / 64;
    for (size_t i = 0; i < 4; i++)
        indexes[i]->all = bits_new(policy);
    for (int k = 0; k < POLICY_KINDS; k++)
        policy->kinds[k] = bits_new(policy);
    for (size_t i = 0; i < policy->count; i++)
        compile_rule(policy, i);
}

// ---- the memo -------------------------------------------------------------------------------

// Sets which rules are in force at this time, and when the next one expires.
static void set_live(struct policy_memo *memo, int64_t now)
{
    const struct policy *policy = memo->policy;
    memset(memo->deny, 0, policy->words * sizeof(word));
    memset(memo->allow, 0, policy->words * sizeof(word));
    memset(memo->shadow, 0, policy->words * sizeof(word));
    memset(memo->conditional, 0, policy->words * sizeof(word));
    memo->next_expiry = INT64_MAX;
    memo->shadows = memo->has_conditions = false;
    for (size_t i = 0; i < policy->count; i++) {
        const struct policy_rule *rule = policy->rules[i];
        if (rule->expires_at && rule->expires_at <= now)
            continue;
        if (rule->expires_at && rule->expires_at < memo->next_expiry)
            memo->next_expiry = rule->expires_at;
        bits_set(rule->mode ? memo->shadow : rule->effect ? memo->allow : memo->deny, i);
        memo->shadows = memo->shadows || rule->mode;
        if (rule->when) {
            bits_set(memo->conditional, i);
            memo->has_conditions = true;
        }
    }
}

struct policy_memo *policy_memo_new(struct policy *policy)
{
    struct policy_memo *memo = mem_new(struct policy_memo);
    word **const sets[] = {
        &memo->tenants.uncached, &memo->servers.uncached, &memo->names.uncached, &memo->deny,  &memo->allow,
        &memo->shadow,           &memo->conditional,      &memo->scratch,        &memo->caller};
    memo->policy = policy_ref(policy);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        *sets[i] = bits_new(policy);
    set_live(memo, policy->loaded_at);
    return memo;
}

void policy_memo_free(struct policy_memo *memo)
{
    if (!memo)
        return;
    struct answers *const answers[] = {&memo->tenants, &memo->servers, &memo->names};
    for (size_t i = 0; i < 3; i++) {
        cache_clear(&answers[i]->cache);
        free(answers[i]->uncached);
    }
    free(memo->deny);
    free(memo->allow);
    free(memo->shadow);
    free(memo->conditional);
    free(memo->scratch);
    free(memo->caller);
    identity_unref(memo->asking);
    policy_unref(memo->policy);
    free(memo);
}

const struct policy *policy_memo_policy(const struct policy_memo *memo) { return memo->policy; }

// ---- deciding -------------------------------------------------------------------------------

bool policy_is_canonical(const struct policy_question *question)
{
    switch (question->kind) {
    case POLICY_RESOURCE: return policy_uri_is_canonical(question->name);
    case POLICY_TEMPLATE: return policy_uri_template_is_canonical(question->name);
    default: return true;
    }
}

static void put_principals(struct policy_memo *memo, const struct identity *who)
{
    const struct policy *policy = memo->policy;
    struct buf atom = {0};
    word *bits = memo->caller;
    bool anonymous = who->proof == IDENTITY_ANONYMOUS;
    memcpy(bits, policy->subjects.all, policy->words * sizeof *bits);
    bits_or(bits, map_find(&policy->subjects.exact, span_of(anonymous ? "anonymous" : "authenticated")), policy->words);
    if (!anonymous) {
        buf_put_text(&atom, "user:");
        buf_put_text(&atom, who->provider);
        buf_put_char(&atom, ':');
        buf_put_text(&atom, who->subject);
        bits_or(bits, map_find(&policy->subjects.exact, buf_span(&atom)), policy->words);
    }
    for (size_t i = 0; i < who->role_count; i++) {
        buf_clear(&atom);
        buf_put_text(&atom, "role:");
        buf_put_text(&atom, who->roles[i]);
        bits_or(bits, map_find(&policy->subjects.exact, buf_span(&atom)), policy->words);
    }
    buf_release(&atom);
}

// The rules that apply to the caller: to its principals and its tenant.
static const word *about_caller(struct policy_memo *memo, const struct identity *who)
{
    const struct policy *policy = memo->policy;
    if (memo->asking != who) {
        identity_unref(memo->asking);
        memo->asking = identity_ref(who);
        put_principals(memo, who);
        bits_and(memo->caller, index_find(policy, &policy->tenants, &memo->tenants, span_of(who->tenant)),
                 policy->words);
    }
    return memo->caller;
}

// The rules whose selectors all match the question; conditions are not evaluated.
static const word *candidates(struct policy_memo *memo, const struct policy_question *question)
{
    const struct policy *policy = memo->policy;
    const word *caller = about_caller(memo, question->identity), *kind = policy->kinds[question->kind];
    const word *server = index_find(policy, &policy->servers, &memo->servers, span_of(question->server));
    const word *name = index_find(policy, &policy->names, &memo->names, question->name);
    word *restrict bits = memo->scratch;
    for (size_t w = 0, words = policy->words; w < words; w++)
        bits[w] = caller[w] & server[w] & kind[w] & name[w];
    return bits;
}

// The first candidate of `mask` whose condition holds, or, for a deny rule, cannot be judged.
static const struct policy_rule *first_match(const struct policy *policy, const word *bits, const word *mask,
                                             const json_t *args, struct condition_work *work)
{
    for (size_t w = 0; w < policy->words; w++)
        for (word left = bits[w] & mask[w]; left; left &= left - 1) {
            const struct policy_rule *rule = policy->rules[w * 64 + (size_t)__builtin_ctzll(left)];
            enum condition_result result =
                rule->when ? condition_eval(rule->when, args, work, NULL, true) : CONDITION_TRUE;
            if (result == CONDITION_TRUE || (!rule->effect && result == CONDITION_ERROR))
                return rule;
        }
    return NULL;
}

int64_t policy_next_expiry(struct policy_memo *memo)
{
    int64_t now = clock_wall_s();
    if (now >= memo->next_expiry)
        set_live(memo, now);
    return memo->next_expiry;
}

static bool prepared(struct policy_memo *memo, const struct policy_question *question)
{
    if (!question->identity || question->identity->proof == IDENTITY_NONE)
        return false;
    (void)policy_next_expiry(memo);
    return true;
}

bool policy_looks_at_arguments(struct policy_memo *memo, const struct policy_question *question)
{
    if (!memo || !memo->has_conditions || !prepared(memo, question))
        return false;
    const word *bits = candidates(memo, question);
    for (size_t w = 0; w < memo->policy->words; w++)
        if (bits[w] & memo->conditional[w])
            return true;
    return false;
}

struct policy_decision policy_decide(struct policy_memo *memo, const struct policy_question *question)
{
    if (!memo || !prepared(memo, question))
        return (struct policy_decision){VERDICT_DENY, NULL, "default"};
    if (memo->policy->allow_all)
        return (struct policy_decision){VERDICT_ALLOW, NULL, "builtin:allow-all"};
    if (!policy_is_canonical(question))
        return (struct policy_decision){VERDICT_DENY, NULL, "uri_not_canonical"};
    const word *bits = candidates(memo, question);
    struct condition_work work = {CONDITION_WORK};
    const struct policy_rule *rule = first_match(memo->policy, bits, memo->deny, question->args, &work);
    if (rule)
        return (struct policy_decision){VERDICT_DENY, rule, rule->id};
    rule = first_match(memo->policy, bits, memo->allow, question->args, &work);
    if (rule)
        return (struct policy_decision){VERDICT_ALLOW, rule, rule->id};
    return (struct policy_decision){VERDICT_DENY, NULL, "default"};
}

// Without conditions.
static bool is_allowed(struct policy_memo *memo, const struct policy_question *question)
{
    const struct policy *policy = memo->policy;
    const word *bits = candidates(memo, question);
    bool allowed = false;
    for (size_t w = 0; w < policy->words; w++) {
        for (word left = bits[w] & memo->deny[w]; left; left &= left - 1)
            if (!policy->rules[w * 64 + (size_t)__builtin_ctzll(left)]->when)
                return false;
        allowed = allowed || (bits[w] & memo->allow[w]);
    }
    return allowed;
}

bool policy_visible(struct policy_memo *memo, const struct policy_question *question)
{
    if (!memo || !prepared(memo, question))
        return false;
    return memo->policy->allow_all || (policy_is_canonical(question) && is_allowed(memo, question));
}

bool policy_visible_pattern(struct policy_memo *memo, const struct policy_question *question)
{
    char *name = mem_span(question->name);
    bool uri = question->kind == POLICY_RESOURCE || question->kind == POLICY_TEMPLATE;
    bool ok = prepared(memo, question) &&
              (!uri || policy_uri_pattern_can_match(name, question->kind == POLICY_TEMPLATE)) &&
              is_allowed(memo, question);
    free(name);
    return ok;
}

// True if a rule allows items of this kind on the server, and none denies all of them.
static bool is_kind_visible(const struct policy_memo *memo, const word *caller, const word *server, int kind)
{
    const struct policy *policy = memo->policy;
    bool allowed = false;
    for (size_t w = 0; w < policy->words; w++) {
        word of_kind = caller[w] & server[w] & policy->kinds[kind][w];
        for (word left = of_kind & memo->deny[w] & policy->names.all[w]; left; left &= left - 1)
            if (!policy->rules[w * 64 + (size_t)__builtin_ctzll(left)]->when)
                return false;
        allowed = allowed || (of_kind & memo->allow[w]);
    }
    return allowed;
}

bool policy_visible_server(struct policy_memo *memo, const struct identity *identity, const char *server)
{
    struct policy_question question = {.identity = identity, .server = server};
    if (!memo || !prepared(memo, &question))
        return false;
    if (memo->policy->allow_all)
        return true;
    const word *caller = about_caller(memo, identity);
    const word *of_server = index_find(memo->policy, &memo->policy->servers, &memo->servers, span_of(server));
    for (int kind = 0; kind < POLICY_KINDS; kind++)
        if (is_kind_visible(memo, caller, of_server, kind))
            return true;
    return false;
}

uint64_t policy_stance(struct policy_memo *memo, const struct policy_question *question, enum verdict effect)
{
    uint64_t sum = 0, part;
    unsigned char digest[SECRET_MAC_BYTES];
    if (!prepared(memo, question))
        return 0;
    const struct policy *policy = memo->policy;
    const word *bits = candidates(memo, question), *mask = effect == VERDICT_ALLOW ? memo->allow : memo->deny;
    for (size_t w = 0; w < policy->words; w++)
        for (word left = bits[w] & mask[w]; left; left &= left - 1) {
            const json_t *when = policy->rules[w * 64 + (size_t)__builtin_ctzll(left)]->when;
            char *text = when ? json_dumps(when, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
            if (!text)
                return UINT64_MAX;  // a rule without a condition makes the others irrelevant
            secret_digest(span_of(text), digest);
            memcpy(&part, digest, sizeof part);
            sum += part;
            free(text);
        }
    return sum;
}

size_t policy_conditions(struct policy_memo *memo, const struct policy_question *question, const json_t **out,
                         size_t max)
{
    size_t count = 0;
    if (!memo || !memo->has_conditions || !prepared(memo, question))
        return 0;
    const struct policy *policy = memo->policy;
    const word *bits = candidates(memo, question);
    for (size_t w = 0; w < policy->words; w++)
        for (word left = bits[w] & memo->allow[w]; left; left &= left - 1) {
            const struct policy_rule *rule = policy->rules[w * 64 + (size_t)__builtin_ctzll(left)];
            if (!rule->when || count == max)
                return 0;
            out[count++] = rule->when;
        }
    return count;
}

const struct policy_rule *policy_shadow(struct policy_memo *memo, const struct policy_question *question)
{
    if (!memo || memo->policy->allow_all || !prepared(memo, question) || !memo->shadows ||
        !policy_is_canonical(question))
        return NULL;
    struct condition_work work = {CONDITION_WORK};
    return first_match(memo->policy, candidates(memo, question), memo->shadow, question->args, &work);
}

// ---- rule by rule, with reasons--------------------------------------------------------------

static bool text_takes(const char *pattern, struct span text) { return glob_match(pattern, text); }

static bool any_takes(char *const *patterns, struct span text)
{
    for (; *patterns; patterns++)
        if (text_takes(*patterns, text))
            return true;
    return false;
}

static bool subject_takes(const struct policy *policy, const char *subject, const struct identity *who, struct buf *via,
                          int depth)
{
    if (strncmp(subject, "group:", 6) != 0) {
        bool yes = identity_is(who, subject);
        if (yes && via && depth)
            buf_put_text(via, subject);
        return yes;
    }
    const struct policy_group *group = policy_source_group(&policy->source, subject + 6);
    for (char **member = group && depth < GROUP_DEPTH_MAX ? group->members : NULL; member && *member; member++)
        if (subject_takes(policy, *member, who, via, depth + 1)) {
            if (via)
                buf_printf(via, " → %s", subject);
            return true;
        }
    return false;
}

static bool names_take(const struct policy *policy, char *const *names, struct span name)
{
    for (; *names; names++) {
        const struct policy_set *set =
            strncmp(*names, "set:", 4) == 0 ? policy_source_set(&policy->source, *names + 4) : NULL;
        if (set ? any_takes(set->names, name) : text_takes(*names, name))
            return true;
    }
    return false;
}

static bool failed(struct buf *why, const char *selector)
{
    if (why)
        buf_put_text(why, selector);
    return false;
}

bool policy_rule_matches(const struct policy *policy, const struct policy_rule *rule,
                         const struct policy_question *question, bool redact, struct buf *why, struct buf *via)
{
    bool subject = false;
    if (rule->expires_at && rule->expires_at <= clock_wall_s())
        return failed(why, "expired");
    if (!any_takes(rule->tenants, span_of(question->identity->tenant)))
        return failed(why, "tenants");
    for (char **text = rule->subjects; *text && !subject; text++)
        subject = subject_takes(policy, *text, question->identity, via, 0);
    if (!subject)
        return failed(why, "subjects");
    if (!any_takes(rule->servers, span_of(question->server)))
        return failed(why, "servers");
    if (!any_takes(rule->kinds, span_of(policy_kind_text(question->kind))))
        return failed(why, "kinds");
    if (question->name.len > POLICY_URI_MAX || !names_take(policy, rule->names, question->name))
        return failed(why, "names");
    if (!rule->when)
        return true;
    struct buf reason = {0};
    struct condition_work work = {CONDITION_WORK};
    enum condition_result result = condition_eval(rule->when, question->args, &work, &reason, redact);
    bool matches = result == CONDITION_TRUE || (result == CONDITION_ERROR && !rule->effect);
    if (!matches && why)
        buf_printf(why, "when %s", buf_text(&reason));
    buf_release(&reason);
    return matches;
}

// ---- loading --------------------------------------------------------------------------------

// The end of the day, in UTC; 0 if the text is not a date.
static int64_t end_of_day(const char *text)
{
    struct tm parts = {0};
    const char *end = text ? strptime(text, "%Y-%m-%d", &parts) : NULL;
    time_t day = end && !*end ? timegm(&parts) : 0;
    char again[16] = "";
    (void)(gmtime_r(&day, &parts) && strftime(again, sizeof again, "%Y-%m-%d", &parts));
    return end && strcmp(again, text) == 0 ? (int64_t)day + 86400 : 0;  // rejects February 30
}

static void gather(struct policy *policy)
{
    for (size_t i = 0; i < policy->source.count; i++) {
        struct policy_file *file = &policy->source.files[i];
        struct policy_rule *rules = file->rules.at;
        struct policy_test *tests = file->tests.at;
        policy_place_ids(file);
        policy->rules = mem_resize(policy->rules, (policy->count + file->rules.count + 1) * sizeof *policy->rules);
        policy->tests = mem_resize(policy->tests, (policy->test_count + file->tests.count + 1) * sizeof *policy->tests);
        for (size_t k = 0; k < file->rules.count; k++) {
            rules[k].file = file->path;
            rules[k].at = k;
            rules[k].expires_at = end_of_day(rules[k].expires);
            if (!rules[k].tenants && file->tenants && file->tenants[0] && !file->tenants[1]) {
                rules[k].tenants = mem_alloc(2 * sizeof(char *));
                rules[k].tenants[0] = mem_string(file->tenants[0]);
            }
            policy->rules[policy->count++] = &rules[k];
        }
        for (size_t k = 0; k < file->tests.count; k++) {
            tests[k].file = file->path;
            tests[k].at = k;
            policy->tests[policy->test_count++] = &tests[k];
        }
    }
}

// The digest of the files as `policy fmt` writes them, one after the other: it does not depend on the format of the
// files, and equals that of sha256sum over formatted files.
static void set_digest(struct policy *policy)
{
    struct buf text = {0};
    unsigned char digest[SECRET_MAC_BYTES];
    for (size_t i = 0; i < policy->source.count; i++) {
        char *formatted = policy_format_tree(policy->source.files[i].tree);
        buf_put_text(&text, formatted);
        free(formatted);
    }
    secret_digest(buf_span(&text), digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(policy->digest + 2 * i, 3, "%02x", digest[i]);
    buf_release(&text);
}

struct identity *policy_test_identity(const struct policy_test *test)
{
    const char *subject = test->as.subject ? test->as.subject : "anonymous", *colon = strchr(subject, ':');
    const char *tenant = test->as.tenant ? test->as.tenant : "default";
    struct identity *who;
    if (strcmp(subject, "anonymous") == 0) {
        who = identity_new(IDENTITY_ANONYMOUS, tenant, "none", "anonymous");
    } else {
        char *provider = colon ? mem_copy(subject, (size_t)(colon - subject)) : mem_string("");
        who = identity_new(IDENTITY_BEARER, tenant, provider, colon ? colon + 1 : subject);
        free(provider);
    }
    for (char **role = test->as.roles; role && *role; role++)
        identity_add_role(who, span_of(*role));
    return who;
}

static void run_test(struct policy_memo *memo, const struct policy_test *test, struct policy_findings *findings)
{
    static const char *const words[] = {"deny", "allow"};
    struct identity *who = policy_test_identity(test);
    struct policy_question question = {who, test->server, (enum policy_kind)test->kind, span_of(test->name),
                                       test->args};
    struct policy_decision decision = policy_decide(memo, &question);
    struct buf advice = {0};
    if (!policy_is_canonical(&question) &&
        policy_uri_put_canonical(question.name, question.kind == POLICY_TEMPLATE, &advice))
        buf_printf(&advice, " is the canonical spelling");
    else
        buf_put_text(&advice, "correct the rules or the test");
    if ((int)decision.verdict != test->expect)
        policy_findings_add(findings, "E9", test->file, 0, NULL, "/tests/%zu \"%s\": expected %s, got %s by %s; %s",
                            test->at, test->description, words[test->expect], words[decision.verdict], decision.by,
                            buf_text(&advice));
    else if (test->by && strcmp(test->by, decision.by) != 0)
        policy_findings_add(findings, "E9", test->file, 0, NULL,
                            "/tests/%zu \"%s\": %s as expected, but by %s and not by %s; correct the rules or \"by\"",
                            test->at, test->description, words[test->expect], decision.by, test->by);
    buf_release(&advice);
    identity_unref(who);
}

static void run_tests(struct policy *policy, struct policy_findings *findings)
{
    struct policy_memo *memo = policy_memo_new(policy);
    for (size_t i = 0; i < policy->test_count; i++)
        run_test(memo, policy->tests[i], findings);
    policy_memo_free(memo);
}

char **policy_principals(const struct policy *policy) { return policy_source_principals(&policy->source); }

char **policy_rule_names(const struct policy *policy, const struct policy_rule *rule)
{
    size_t count = 0;
    char **all = mem_alloc(sizeof *all);
    for (char **name = rule->names; *name; name++) {
        const struct policy_set *set =
            strncmp(*name, "set:", 4) == 0 ? policy_source_set(&policy->source, *name + 4) : NULL;
        for (char **one = set ? set->names : (char *[]){*name, NULL}; *one; one++) {
            all = mem_resize(all, (count + 2) * sizeof *all);
            all[count++] = mem_string(*one);
            all[count] = NULL;
        }
    }
    return all;
}

static void set_error(const struct policy_load *load, const struct policy_findings *findings, struct err *err)
{
    const struct policy_finding *first = findings->at;
    char line[16] = "";
    while (first->code[0] != 'E')
        first++;
    if (first->line)
        snprintf(line, sizeof line, ":%d", first->line);
    (void)err_set(err, ERR_CONFIG, "policy %s: %s%s: %s %s%s", load->path, first->file, line, first->code, first->text,
                  findings->errors == 1 ? "" : "; 'postern policy check' lists the other errors");
}

struct policy *policy_load(const struct policy_load *load, struct policy_findings *findings, struct err *err)
{
    struct policy *policy = mem_new(struct policy);
    policy->refs = 1;
    policy->loaded_at = load->now;
    if (!policy_source_read(load->path, &policy->source, findings, err)) {
        policy_unref(policy);
        return NULL;
    }
    if (!findings->errors) {
        gather(policy);
        policy_lint(&policy->source, load, findings);
    }
    if (!findings->errors)
        policy_inventory_lint(&policy->source, load, findings);
    if (!findings->errors) {
        set_digest(policy);
        compile(policy);
        run_tests(policy, findings);
    }
    policy_place_findings(&policy->source, findings);
    if (findings->errors) {
        set_error(load, findings, err);
        policy_unref(policy);
        return NULL;
    }
    return policy;
}

struct policy *policy_allow_all(void)
{
    struct policy *policy = mem_new(struct policy);
    policy->refs = 1;
    policy->allow_all = true;
    return policy;
}

struct policy *policy_ref(struct policy *policy)
{
    policy->refs++;
    return policy;
}

void policy_unref(struct policy *policy)
{
    if (!policy || --policy->refs)
        return;
    struct index *const indexes[] = {&policy->tenants, &policy->subjects, &policy->servers, &policy->names};
    for (size_t i = 0; i < 4; i++)
        index_release(indexes[i]);
    for (int k = 0; k < POLICY_KINDS; k++)
        free(policy->kinds[k]);
    free(policy->rules);
    free(policy->tests);
    policy_source_release(&policy->source);
    free(policy);
}

bool policy_is_open(const struct policy *policy) { return policy->allow_all; }

const char *policy_digest(const struct policy *policy) { return policy->digest; }
size_t policy_rule_count(const struct policy *policy) { return policy->count; }
const struct policy_rule *policy_rule_at(const struct policy *policy, size_t i) { return policy->rules[i]; }
size_t policy_test_count(const struct policy *policy) { return policy->test_count; }
const struct policy_test *policy_test_at(const struct policy *policy, size_t i) { return policy->tests[i]; }
