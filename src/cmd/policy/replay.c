// Owns `postern policy replay`: decides the decisions of the audit log again, by another policy.
//
// A row may lack data that a decision needs. Arguments are recorded only if configured, and may be redacted; roles are
// missing in rows of older versions. A rule that depends on missing data is undecided, and if it could change the verdict,
// the row is reported as depending on that data. Nothing is guessed.
#include "base/map.h"
#include "base/mem.h"
#include "base/secret.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "store/audit/audit.h"
#include "subcommands.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REDACTED "[redacted]"
#define CUT "…"
#define TEXT_MAX 1024  // longer texts were cut
#define SUBJECTS_SHOWN 5
#define MEMO_MAX 100000

static const char *const verdicts[] = {"deny", "allow"};

enum { ON_ARGUMENTS = 1, ON_ROLES = 2 };
static const char *const depends[] = {"", "depends on arguments", "depends on roles", "depends on arguments and roles"};

// One row as the original question.
struct asked {
    struct policy_question question;
    json_t *args;
    bool args_known;
    struct identity *who;
    struct identity *at_most;  // with every role of the policy; NULL: the roles are known
    enum verdict before;
};

struct replay_answer {
    enum verdict verdict;
    unsigned on;     // the missing data it depends on, as bits; 0: none
    const char *by;  // the rule that decides, or the first rule that may
};

struct replay {
    struct policy *policy;
    struct policy_memo *memo;
    const char *tenant;  // NULL: all
    json_t *roles;       // every role in the policy
    bool roles_seen;     // an earlier row had roles: since then, a row without roles means a caller without roles
    struct map answers;  // digest of the question -> struct replay_answer *
    struct map groups;   // the text of an output line -> json_t *
    json_t *changes;
    size_t rows, skipped, same, newly[2], undecided;
};

// ---- a row ----------------------------------------------------------------------------------

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

// A member that contains JSON, as a text or as parsed.
static json_t *inner_json(const json_t *row, const char *key,
                          json_t *(*parse)(struct span text, const char *what, struct err *err))
{
    struct err err;
    json_t *member = json_object_get(row, key);
    if (!json_is_string(member))
        return json_incref(member);
    return parse(span_make(json_string_value(member), json_string_length(member)), key, &err);
}

// The arguments of the call. False: the row does not have them, or not completely.
static bool read_arguments(const json_t *row, json_t **args)
{
    char digest[AUDIT_HASH_CHARS + 1];
    const char *sha256 = text_of(row, "arguments_sha256");
    *args = inner_json(row, "arguments", json_parse_arguments);
    if (!*sha256 && !*args)
        return true;
    char *text = json_is_object(*args) ? json_dumps(*args, JSON_COMPACT) : NULL;
    bool whole = text && !strstr(text, REDACTED);
    free(text);
    if (whole)
        return true;
    json_decref(*args);
    secret_digest_hex(span_of("{}"), digest);
    *args = strcmp(sha256, digest) == 0 ? json_object() : NULL;
    return *args != NULL;
}

static void add_roles(struct identity *who, const json_t *roles)
{
    size_t i;
    const json_t *role;
    json_array_foreach(roles, i, role)
        identity_add_role(who, span_of(json_string_value(role) ? json_string_value(role) : ""));
}

static struct identity *read_caller(const json_t *row, const json_t *roles)
{
    bool anonymous = strcmp(text_of(row, "proof"), "anonymous") == 0;
    struct identity *who = identity_new(anonymous ? IDENTITY_ANONYMOUS : IDENTITY_BEARER, text_of(row, "tenant"),
                                        text_of(row, "provider"), text_of(row, "subject"));
    add_roles(who, roles);
    return who;
}

// Sets the caller, and, if its roles are not known, the caller with every role of the policy.
static void read_identity(struct replay *replay, const json_t *row, struct asked *asked)
{
    json_t *roles = inner_json(row, "roles", json_parse);
    size_t count = json_array_size(roles);
    const char *last = json_string_value(json_array_get(roles, count - (count > 0)));
    bool whole = json_is_array(roles) && !(last && strcmp(last, CUT) == 0);
    bool none =
        !json_object_get(row, "roles") && (replay->roles_seen || strcmp(text_of(row, "proof"), "anonymous") == 0);
    replay->roles_seen = replay->roles_seen || json_object_get(row, "roles");
    asked->who = read_caller(row, whole ? roles : NULL);
    asked->at_most = whole || none ? NULL : read_caller(row, replay->roles);
    json_decref(roles);
}

// False: the row is not about a decision of a policy.
static bool read_row(struct replay *replay, const json_t *row, struct asked *asked)
{
    const char *decision = text_of(row, "decision"), *server = text_of(row, "server");
    bool allowed = strcmp(decision, "allow") == 0;
    *asked = (struct asked){.before = allowed ? VERDICT_ALLOW : VERDICT_DENY};
    if (strlen(text_of(row, "name")) > TEXT_MAX || strlen(text_of(row, "subject")) > TEXT_MAX)
        return false;
    // A deny without the status "denied" was refused before the policy was asked, as is every call without a server.
    if (strcmp(text_of(row, "event"), "call") != 0 || !*server ||
        !policy_kind_parse(text_of(row, "kind"), &asked->question.kind) ||
        (!allowed && (strcmp(decision, "deny") != 0 || strcmp(text_of(row, "status"), "denied") != 0)))
        return false;
    read_identity(replay, row, asked);
    asked->args_known = read_arguments(row, &asked->args);
    asked->question.identity = asked->who;
    asked->question.server = server;
    asked->question.name = span_of(text_of(row, "name"));
    asked->question.args = asked->args;
    return true;
}

static void release(struct asked *asked)
{
    identity_unref(asked->who);
    identity_unref(asked->at_most);
    json_decref(asked->args);
}

// ---- deciding -------------------------------------------------------------------------------

enum match { MATCH_NO, MATCH_MAYBE, MATCH_YES };

static enum match match(const struct policy *policy, const struct policy_rule *rule, const struct asked *asked,
                        unsigned *on)
{
    struct policy_question question = asked->question;
    struct policy_rule bare = *rule;
    *on = 0;
    bare.when = NULL;
    if (!policy_rule_matches(policy, &bare, &question, true, NULL, NULL)) {
        question.identity = asked->at_most;
        if (!question.identity || !policy_rule_matches(policy, &bare, &question, true, NULL, NULL))
            return MATCH_NO;
        *on |= ON_ROLES;
    }
    if (rule->when && !asked->args_known)
        *on |= ON_ARGUMENTS;
    else if (rule->when && !policy_rule_matches(policy, rule, &question, true, NULL, NULL))
        return MATCH_NO;
    return *on ? MATCH_MAYBE : MATCH_YES;
}

// As policy_decide(), with a third result: missing data could change the verdict.
static struct replay_answer decide_partly(const struct policy *policy, const struct asked *asked)
{
    struct replay_answer best[2][MATCH_YES + 1] = {0};  // by effect and match: the first such rule
    for (size_t i = 0; i < policy_rule_count(policy); i++) {
        const struct policy_rule *rule = policy_rule_at(policy, i);
        unsigned on = 0;
        enum match got = rule->mode ? MATCH_NO : match(policy, rule, asked, &on);
        struct replay_answer *slot = &best[rule->effect][got];
        slot->verdict = rule->effect ? VERDICT_ALLOW : VERDICT_DENY;
        slot->on |= on;
        slot->by = slot->by ? slot->by : rule->id;
    }
    const struct replay_answer *denies = best[0], *allows = best[1];
    bool may_allow = allows[MATCH_YES].by || allows[MATCH_MAYBE].by;
    if (denies[MATCH_YES].by)
        return denies[MATCH_YES];
    if (denies[MATCH_MAYBE].by && may_allow)
        return denies[MATCH_MAYBE];
    if (allows[MATCH_YES].by)
        return allows[MATCH_YES];
    return allows[MATCH_MAYBE].by ? allows[MATCH_MAYBE] : (struct replay_answer){.by = "default"};
}

static struct replay_answer decide(struct policy_memo *memo, const struct asked *asked)
{
    struct policy_decision decision = policy_decide(memo, &asked->question);
    bool whole = asked->args_known && !asked->at_most;
    if (whole || strcmp(decision.by, "uri_not_canonical") == 0)
        return (struct replay_answer){decision.verdict, 0, decision.by};
    return decide_partly(policy_memo_policy(memo), asked);
}

// The same questions occur many times: each one is decided once.
static struct replay_answer decide_once(struct replay *replay, const json_t *row, const struct asked *asked)
{
    static const char *const parts[] = {"tenant", "provider", "subject", "proof", "server", "kind", "name", NULL};
    struct buf key = {0};
    unsigned char digest[SECRET_MAC_BYTES];
    for (const char *const *part = parts; *part; part++)
        buf_put(&key, text_of(row, *part), strlen(text_of(row, *part)) + 1);
    for (size_t i = 0; i < asked->who->role_count; i++)
        buf_put(&key, asked->who->roles[i], strlen(asked->who->roles[i]) + 1);
    char *args = json_dumps(asked->args, JSON_COMPACT);
    buf_printf(&key, "%d%d%s", asked->args_known, asked->at_most != NULL, args ? args : "");
    free(args);
    secret_digest(buf_span(&key), digest);
    buf_release(&key);
    struct span name = span_make((const char *)digest, sizeof digest);
    struct replay_answer *known = map_find(&replay->answers, name);
    if (known)
        return *known;
    struct replay_answer answer = decide(replay->memo, asked);
    if (replay->answers.count < MEMO_MAX) {
        known = mem_new(struct replay_answer);
        *known = answer;
        map_put(&replay->answers, name, known);
    }
    return answer;
}

// ---- changes --------------------------------------------------------------------------------

static json_t *group_of(struct replay *replay, const json_t *row, const struct asked *asked,
                        const struct replay_answer *now)
{
    const char *before = verdicts[asked->before], *was_by = text_of(row, "rule"), *name = text_of(row, "name"),
               *after = now->on ? depends[now->on] : verdicts[now->verdict], *tenant = asked->who->tenant,
               *server = asked->question.server, *kind = text_of(row, "kind");
    const char *change = now->on ? depends[now->on] : now->verdict == VERDICT_ALLOW ? "newly allowed" : "newly denied";
    struct buf key = {0};
    const char *const parts[] = {change, tenant, server, kind, name, was_by, now->by};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        buf_put(&key, parts[i], strlen(parts[i]) + 1);
    buf_put_text(&key, before);
    json_t *group = map_find(&replay->groups, buf_span(&key));
    if (!group) {
        group = json_pack("{s:s,s:I,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:{}}", "change", change, "count", (json_int_t)0,
                          "tenant", tenant, "server", server, "kind", kind, "name", name, "before", before,
                          "before_rule", was_by, "after", after, "after_rule", now->by, "subjects");
        json_array_append_new(replay->changes, group);
        map_put(&replay->groups, buf_span(&key), group);
    }
    buf_release(&key);
    return group;
}

static void add_one(json_t *object, const char *key)
{
    json_object_set_new(object, key, json_integer(json_integer_value(json_object_get(object, key)) + 1));
}

static void on_row(struct replay *replay, const json_t *row)
{
    struct asked asked;
    if (!read_row(replay, row, &asked)) {
        replay->skipped++;
        return;
    }
    struct replay_answer now = decide_once(replay, row, &asked);
    replay->rows++;
    if (!now.on && now.verdict == asked.before) {
        replay->same++;
    } else {
        struct buf who = {0};
        json_t *group = group_of(replay, row, &asked, &now);
        *(now.on ? &replay->undecided : &replay->newly[now.verdict]) += 1;
        if (asked.who->proof == IDENTITY_ANONYMOUS)
            buf_put_text(&who, "anonymous");
        else
            buf_printf(&who, "%s:%s", asked.who->provider, asked.who->subject);
        add_one(group, "count");
        add_one(json_object_get(group, "subjects"), buf_text(&who));
        buf_release(&who);
    }
    release(&asked);
}

// ---- reading --------------------------------------------------------------------------------

static bool is_database(const char *path, struct err *err)
{
    char head[16] = "";
    FILE *in = fopen(path, "re");
    if (!in)
        return !err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    bool whole = fread(head, 1, sizeof head, in) == sizeof head;
    fclose(in);
    return whole && memcmp(head, "SQLite format 3", sizeof head) == 0;
}

static bool read_database(struct replay *replay, const char *path, int64_t since_ms, struct err *err)
{
    struct audit_filter filter = {.since_ms = since_ms, .tenant = replay->tenant};
    struct audit_row row;
    enum audit_next next = AUDIT_READ_FAILED;
    struct audit_reader *reader = audit_reader_open(path, &filter, err);
    while (reader && (next = audit_reader_next(reader, &row, err)) == AUDIT_READ_ROW) {
        json_t *tree = json_parse(row.json, path, err);
        if (!tree)
            break;
        on_row(replay, tree);
        json_decref(tree);
    }
    audit_reader_close(reader);
    return next == AUDIT_READ_END;
}

static bool wants(const struct replay *replay, const json_t *row, const char *since)
{
    return strcmp(text_of(row, "time"), since) >= 0 &&
           (!replay->tenant || strcmp(text_of(row, "tenant"), replay->tenant) == 0);
}

static bool read_lines(struct replay *replay, const char *path, int64_t since_ms, struct err *err)
{
    char since[32] = "", *line = NULL;
    size_t room = 0, number = 0;
    ssize_t len;
    bool ok = true;
    time_t seconds = (time_t)(since_ms / 1000);
    struct tm parts;
    if (since_ms && gmtime_r(&seconds, &parts))
        (void)strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%S", &parts);
    FILE *in = fopen(path, "re");
    if (!in)
        return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
    while (ok && (len = getline(&line, &room, in)) > 0 &&
           line[len - 1] == '\n') {  // the last line may still be incomplete
        char place[512];
        snprintf(place, sizeof place, "%.480s: line %zu", path, ++number);
        json_t *row = json_parse(span_make(line, (size_t)len), place, err);
        ok = row != NULL;
        if (ok && wants(replay, row, since))
            on_row(replay, row);
        json_decref(row);
    }
    free(line);
    fclose(in);
    return ok;
}

static bool read_audit(struct replay *replay, const char *path, int64_t since_ms, struct err *err)
{
    bool database = is_database(path, err);
    if (err->code)
        return false;
    return database ? read_database(replay, path, since_ms, err) : read_lines(replay, path, since_ms, err);
}

// ---- output ---------------------------------------------------------------------------------

static int by_weight(const void *a, const void *b)
{
    const json_t *one = *(json_t *const *)a, *other = *(json_t *const *)b;
    int kinds = strcmp(text_of(other, "change"), text_of(one, "change"));  // "newly …" before "depends …"
    json_int_t left = json_integer_value(json_object_get(one, "count")),
               right = json_integer_value(json_object_get(other, "count"));
    int order = kinds ? kinds : (left < right) - (left > right);
    static const char *const keys[] = {"tenant", "server", "kind", "name", "before", "before_rule", "after_rule"};
    for (size_t i = 0; !order && i < sizeof keys / sizeof *keys; i++)
        order = strcmp(text_of(one, keys[i]), text_of(other, keys[i]));
    return order;
}

static json_t *sorted(const json_t *changes)
{
    size_t count = json_array_size(changes);
    json_t **all = mem_alloc((count + 1) * sizeof(json_t *)), *out = json_array();
    for (size_t i = 0; i < count; i++)
        all[i] = json_array_get(changes, i);
    if (count)
        qsort(all, count, sizeof(json_t *), by_weight);
    for (size_t i = 0; i < count; i++)
        json_array_append(out, all[i]);
    free(all);
    return out;
}

static void print_subjects(const json_t *subjects)
{
    size_t shown = 0;
    const char *who;
    json_t *count;
    json_object_foreach((json_t *)(uintptr_t)subjects, who, count) {
        if (shown == SUBJECTS_SHOWN)
            break;
        printf("%s%s %" JSON_INTEGER_FORMAT, shown++ ? ", " : "      ", who, json_integer_value(count));
    }
    if (json_object_size(subjects) > shown)
        printf(" and %zu more", json_object_size(subjects) - shown);
    putchar('\n');
}

static void print_changes(const json_t *changes)
{
    size_t i;
    const json_t *group;
    const char *last = "";
    json_array_foreach(changes, i, group) {
        const char *change = text_of(group, "change");
        if (strcmp(change, last) != 0)
            printf("%s%s\n", *last ? "\n" : "", change);
        last = change;
        printf("  %" JSON_INTEGER_FORMAT "  %s: %s %s %s: %s by %s → %s, by %s\n",
               json_integer_value(json_object_get(group, "count")), text_of(group, "tenant"), text_of(group, "server"),
               text_of(group, "kind"), text_of(group, "name"), text_of(group, "before"), text_of(group, "before_rule"),
               text_of(group, "after"), text_of(group, "after_rule"));
        print_subjects(json_object_get(group, "subjects"));
    }
    if (json_array_size(changes))
        putchar('\n');
}

static void print_replay(const struct flags *flags, const struct replay *replay)
{
    json_t *changes = sorted(replay->changes);
    size_t denied = replay->newly[VERDICT_DENY], allowed = replay->newly[VERDICT_ALLOW];
    if (flags->json) {
        output_json(json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:O}", "policy_digest", policy_digest(replay->policy),
                              "replayed", (json_int_t)replay->rows, "same", (json_int_t)replay->same, "newly_denied",
                              (json_int_t)denied, "newly_allowed", (json_int_t)allowed, "depends",
                              (json_int_t)replay->undecided, "skipped", (json_int_t)replay->skipped, "changes",
                              changes));
    } else {
        print_changes(changes);
        printf("%zu decisions replayed: %zu as before, %zu newly denied, %zu newly allowed, %zu undecided; %zu other "
               "rows\n",
               replay->rows, replay->same, denied, allowed, replay->undecided, replay->skipped);
    }
    json_decref(changes);
}

// ---- the command ----------------------------------------------------------------------------

static json_t *named_roles(const struct policy *policy)
{
    json_t *roles = json_array();
    char **named = policy_principals(policy);
    for (char **one = named; *one; one++) {
        if (strncmp(*one, "role:", 5) == 0)
            json_array_append_new(roles, json_string(*one + 5));
        free(*one);
    }
    free(named);
    return roles;
}

static void release_replay(struct replay *replay)
{
    void *answer;
    for (size_t at = 0; map_next(&replay->answers, &at, NULL, &answer);)
        free(answer);
    map_release(&replay->answers);
    map_release(&replay->groups);
    json_decref(replay->changes);
    json_decref(replay->roles);
    policy_memo_free(replay->memo);
    policy_unref(replay->policy);
}

int policy_replay(const struct flags *flags)
{
    int code = EXIT_OK;
    struct err err = {0};
    int64_t since_ms = 0;
    if (flags->since && !options_time(flags->since, &since_ms))
        return fail_with(EXIT_USAGE, "policy replay: --since must be a duration before now such as 1h, or a date such "
                                     "as 2027-01-31 or 2027-01-31T12:00:00Z");
    char *path = configuration_audit_path(flags, &code);
    struct policy *policy = path ? policy_open(flags->policy, flags->policy, &code) : NULL;
    if (!policy) {
        free(path);
        return code;
    }
    struct replay replay = {.policy = policy,
                            .memo = policy_memo_new(policy),
                            .tenant = flags->tenant,
                            .roles = named_roles(policy),
                            .changes = json_array()};
    if (!read_audit(&replay, path, since_ms, &err))
        code = fail_with_err(&err);
    else
        print_replay(flags, &replay);
    if (code == EXIT_OK && (replay.newly[VERDICT_DENY] || replay.newly[VERDICT_ALLOW]))
        code = EXIT_NEGATIVE;
    free(path);
    release_replay(&replay);
    return code;
}
