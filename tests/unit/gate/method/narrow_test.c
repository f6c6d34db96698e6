// Tests narrowing (X9): the values that the rules allow a caller to pass, and the inputSchema cut down to them. All other bytes of
// the tool stay unchanged.
#include "auth/policy/policy.h"
#include "draw.h"
#include "rows.h"
#include "unit.h"
#include <time.h>
#include <unistd.h>

static char path[] = "/tmp/postern-narrow-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

// A policy with an allow rule about one tool for each element of the array: its conditions, or null for a rule without.
static struct policy *policy_of(const json_t *conditions, const char *more)
{
    size_t i;
    json_t *when, *rules = json_array();
    json_array_foreach(conditions, i, when) {
        char id[32];
        snprintf(id, sizeof id, "r%zu", i);
        json_t *rule = json_pack("{s:s,s:s,s:s,s:[s],s:[s],s:[s],s:[s],s:[s]}", "id", id, "effect", "allow",
                                 "description", "a rule of this test", "tenants", "*", "subjects", "user:corp:ann",
                                 "servers", "s", "kinds", "tool", "names", "t");
        if (!json_is_null(when))
            json_object_set(rule, "when", when);
        json_array_append_new(rules, rule);
    }
    json_t *extra = more ? json_loads(more, 0, NULL) : NULL;
    if (extra)
        json_array_append_new(rules, extra);
    json_t *tree = json_pack("{s:i,s:s,s:o}", "version", 1, "description", "A policy of a test", "rules", rules);
    assert_int_equal(json_dump_file(tree, path, 0), 0);
    json_decref(tree);
    struct err err = {0};
    struct policy_findings findings = {0};
    struct policy_load load = {.path = path, .now = (int64_t)time(NULL)};
    struct policy *policy = policy_load(&load, &findings, &err);
    assert_row(policy != NULL, err.detail);
    policy_findings_release(&findings);
    return policy;
}

static struct identity *ann(void) { return identity_new(IDENTITY_BEARER, "default", "corp", "ann"); }

#define TOOL(schema) "{\"name\":\"s__t\",\"inputSchema\":" schema ",\"x\":1e2}"
#define OBJECT(properties) "{ \"type\":\"object\",\"properties\":{" properties "},\"required\":[\"a\"]}"
#define ONE(schema) TOOL(OBJECT("\"a\":" schema ",\"z\":{ }"))

// `out` NULL: the schema is not narrowed.
static const struct {
    const char *item, *conditions, *in, *out;
} rows[] = {
    {"in", "[{\"/a\":{\"in\":[\"x\",\"y\"]}}]", ONE("{\"type\":\"string\"}"),
     ONE("{\"type\":\"string\",\"enum\":[\"x\",\"y\"]}")},
    {"eq", "[{\"/a\":{\"eq\":\"x\"}}]", ONE("{\"type\":\"string\"}"), ONE("{\"type\":\"string\",\"enum\":[\"x\"]}")},
    {"numbers", "[{\"/a\":{\"in\":[1,2.5,-3]}}]", ONE("{\"type\" : \"number\" }"),
     ONE("{\"type\" : \"number\" ,\"enum\":[1,2.5,-3]}")},
    {"an empty schema", "[{\"/a\":{\"eq\":true}}]", ONE("{ }"), ONE("{ \"enum\":[true]}")},
    {"the schema true", "[{\"/a\":{\"eq\":1}}]", ONE("true"), ONE("{\"enum\":[1]}")},
    {"the schema false", "[{\"/a\":{\"eq\":1}}]", ONE("false"), NULL},
    {"an invalid schema", "[{\"/a\":{\"eq\":1}}]", ONE("\"string\""), NULL},
    {"union over rules", "[{\"/a\":{\"in\":[\"x\",\"y\"]}},{\"/a\":{\"in\":[\"y\",\"z\"]}}]", ONE("{}"),
     ONE("{\"enum\":[\"x\",\"y\",\"z\"]}")},
    {"a rule without when", "[{\"/a\":{\"eq\":\"x\"}},null]", ONE("{}"), NULL},
    {"a rule about another argument", "[{\"/a\":{\"eq\":\"x\"}},{\"/z\":{\"eq\":\"x\"}}]", ONE("{}"), NULL},
    {"a rule that only bounds it", "[{\"/a\":{\"eq\":1}},{\"/a\":{\"lt\":5}}]", ONE("{}"), NULL},
    {"other operators only", "[{\"/a\":{\"glob\":\"x*\"}}]", ONE("{}"), NULL},
    {"not_in alone", "[{\"/a\":{\"not_in\":[\"x\"]}}]", ONE("{}"), NULL},
    {"other operators beside it", "[{\"/a\":{\"in\":[1,5,9],\"lt\":9,\"ne\":1}}]", ONE("{}"), ONE("{\"enum\":[5]}")},
    {"eq and in", "[{\"/a\":{\"in\":[1,5],\"eq\":5}}]", ONE("{}"), ONE("{\"enum\":[5]}")},
    {"no value can pass", "[{\"/a\":{\"in\":[1,5],\"gt\":9}}]", ONE("{}"), NULL},
    {"must be absent", "[{\"/a\":{\"in\":[1],\"present\":false}}]", ONE("{}"), NULL},
    {"a list as value", "[{\"/a\":{\"eq\":[1]}}]", ONE("{}"), NULL},
    {"an object among values", "[{\"/a\":{\"in\":[1,{}]}}]", ONE("{}"), NULL},
    {"an integer beyond doubles", "[{\"/a\":{\"eq\":9007199254740993}}]", ONE("{}"), NULL},
    {"the enum of the schema", "[{\"/a\":{\"in\":[\"x\",\"q\"]}}]", ONE("{\"enum\" : [ \"w\", \"x\" ,\"y\"],\"k\":0}"),
     ONE("{\"enum\" : [\"x\"],\"k\":0}")},
    {"the enum in other spellings", "[{\"/a\":{\"in\":[\"\xC3\xA9\",100]}}]", ONE("{\"enum\":[\"\\u00e9\",1.0e2,7]}"),
     ONE("{\"enum\":[\"\\u00e9\",1.0e2]}")},
    {"an enum that is narrower", "[{\"/a\":{\"in\":[\"x\",\"y\"]}}]", ONE("{\"enum\":[\"x\"]}"), NULL},
    {"an enum without the value", "[{\"/a\":{\"eq\":\"x\"}}]", ONE("{\"enum\":[\"y\"]}"), NULL},
    {"an invalid enum", "[{\"/a\":{\"eq\":\"x\"}}]", ONE("{\"enum\":\"y\"}"), NULL},
    {"any", "[{\"any\":[{\"/a\":{\"eq\":1}},{\"/a\":{\"in\":[2,3]}}]}]", ONE("{}"), ONE("{\"enum\":[1,2,3]}")},
    {"any, with an open alternative", "[{\"any\":[{\"/a\":{\"eq\":1}},{\"/z\":{\"eq\":1}}]}]", ONE("{}"), NULL},
    {"any beside another condition", "[{\"/a\":{\"in\":[1,2]},\"any\":[{\"/a\":{\"eq\":1}},{\"/z\":{\"eq\":1}}]}]",
     ONE("{}"), ONE("{\"enum\":[1,2]}")},
    {"two arguments", "[{\"/a\":{\"eq\":1},\"/z\":{\"eq\":\"q\"}}]", TOOL(OBJECT("\"z\":{},\"y\":{},\"a\":{}")),
     TOOL(OBJECT("\"z\":{\"enum\":[\"q\"]},\"y\":{},\"a\":{\"enum\":[1]}"))},
    {"inside an object", "[{\"/o/a\":{\"eq\":1}}]",
     TOOL(OBJECT("\"a\":{},\"o\":{\"type\":\"object\",\"properties\":{\"a\":{}}}")),
     TOOL(OBJECT("\"a\":{},\"o\":{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[1]}}}"))},
    {"too deep inside", "[{\"/o/p/a\":{\"eq\":1}}]",
     TOOL(OBJECT("\"o\":{\"properties\":{\"p\":{\"properties\":{\"a\":{}}}}}")), NULL},
    {"an argument and inside it", "[{\"/a/b\":{\"eq\":1},\"/a\":{\"eq\":2}}]", ONE("{\"properties\":{\"b\":{}}}"),
     ONE("{\"properties\":{\"b\":{}},\"enum\":[2]}")},
    {"escapes in the pointer", "[{\"/a~1b~0\":{\"eq\":1}}]", TOOL(OBJECT("\"a/b~\":{},\"a\":{}")),
     TOOL(OBJECT("\"a/b~\":{\"enum\":[1]},\"a\":{}"))},
    {"escapes in the schema", "[{\"/a\":{\"eq\":1}}]", TOOL(OBJECT("\"\\u0061\":{}")),
     TOOL(OBJECT("\"\\u0061\":{\"enum\":[1]}"))},
    {"a star", "[{\"/*\":{\"eq\":1}}]", TOOL(OBJECT("\"*\":{}")), NULL},
    {"the arguments as a whole", "[{\"\":{\"max_len\":1}}]", ONE("{}"), NULL},
    {"no such property", "[{\"/b\":{\"eq\":1}}]", ONE("{}"), NULL},
    {"no properties", "[{\"/a\":{\"eq\":1}}]", TOOL("{\"type\":\"object\"}"), NULL},
    {"no schema", "[{\"/a\":{\"eq\":1}}]", "{\"name\":\"s__t\"}", NULL},
    {"a schema in another member", "[{\"/a\":{\"eq\":1}}]",
     "{\"outputSchema\":" OBJECT("\"a\":{}") ",\"inputSchema\":{}}", NULL},
    {"texts are quoted", "[{\"/a\":{\"eq\":\"\\\"\\\\\\n\"}}]", ONE("{}"), ONE("{\"enum\":[\"\\\"\\\\\\n\"]}")},
};

static void input_schemas_are_narrowed_as_in_the_table(void **state)
{
    (void)state;
    struct identity *who = ann();
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_t *conditions = json_loads(rows[i].conditions, 0, NULL);
        struct policy *policy = policy_of(conditions, NULL);
        struct policy_memo *memo = policy_memo_new(policy);
        struct policy_question question = {who, "s", POLICY_TOOL, SPAN("t"), NULL};
        json_t *narrowing = policy_narrowing(memo, &question);
        struct buf out = {0};
        narrow_tool(span_of(rows[i].in), narrowing, &out);
        assert_span(buf_span(&out), span_of(rows[i].out ? rows[i].out : rows[i].in), rows[i].item);
        buf_release(&out);
        json_decref(narrowing);
        json_decref(conditions);
        policy_memo_free(memo);
        policy_unref(policy);
    }
    identity_unref(who);
}

// A rule counts if it allows, is in force, and is about this tool and this caller.
static void only_the_rules_about_a_tool_and_its_caller_narrow_its_schema(void **state)
{
    (void)state;
#define MORE                            \
    "\"description\":\"a rule of this " \
    "test\",\"tenants\":[\"*\"],\"servers\":[\"s\"],\"kinds\":[\"tool\"],\"names\":[\"t\"]"
    static const struct {
        const char *more;
        bool narrowed;
    } others[] = {
        {NULL, true},
        {"{\"id\":\"o\",\"effect\":\"allow\",\"subjects\":[\"user:corp:bob\"]," MORE "}", true},
        {"{\"id\":\"o\",\"effect\":\"allow\",\"subjects\":[\"*\"],\"mode\":\"shadow\"," MORE "}", true},
        {"{\"id\":\"o\",\"effect\":\"allow\",\"subjects\":[\"*\"],\"expires\":\"2020-01-01\"," MORE "}", true},
        {"{\"id\":\"o\",\"effect\":\"deny\",\"subjects\":[\"*\"],\"when\":{\"/b\":{\"eq\":1}}," MORE "}", true},
        {"{\"id\":\"o\",\"effect\":\"allow\",\"subjects\":[\"*\"]," MORE "}", false},
    };
    struct identity *who = ann();
    json_t *conditions = json_loads("[{\"/a\":{\"eq\":1}}]", 0, NULL);
    for (size_t i = 0; i < COUNT(others); i++) {
        struct policy *policy = policy_of(conditions, others[i].more);
        struct policy_memo *memo = policy_memo_new(policy);
        struct policy_question question = {who, "s", POLICY_TOOL, SPAN("t"), NULL};
        json_t *narrowing = policy_narrowing(memo, &question);
        assert_row((narrowing != NULL) == others[i].narrowed, others[i].more);
        json_decref(narrowing);
        question.name = SPAN("u");
        assert_null(policy_narrowing(memo, &question));
        policy_memo_free(memo);
        policy_unref(policy);
    }
    struct policy *open = policy_allow_all();
    struct policy_memo *open_memo = policy_memo_new(open);
    struct policy_question question = {who, "s", POLICY_TOOL, SPAN("t"), NULL};
    assert_null(policy_narrowing(open_memo, &question));
    policy_memo_free(open_memo);
    policy_unref(open);
    json_decref(conditions);
    identity_unref(who);
}

// A list of so many values would not help a caller.
static void an_enum_of_more_than_256_values_does_not_narrow_a_schema(void **state)
{
    (void)state;
    struct identity *who = ann();
    for (int count = 256; count <= 257; count++) {
        json_t *values = json_array();
        for (int i = 0; i < count; i++)
            json_array_append_new(values, json_integer(i));
        json_t *conditions = json_pack("[{s:{s:o}}]", "/a", "in", values);
        struct policy *policy = policy_of(conditions, NULL);
        struct policy_memo *memo = policy_memo_new(policy);
        struct policy_question question = {who, "s", POLICY_TOOL, SPAN("t"), NULL};
        json_t *narrowing = policy_narrowing(memo, &question);
        assert_int_equal(json_array_size(json_object_get(narrowing, "/a")), count == 256 ? 256 : 0);
        json_decref(narrowing);
        json_decref(conditions);
        policy_memo_free(memo);
        policy_unref(policy);
    }
    identity_unref(who);
}

// ---- never too narrow -----------------------------------------------------------------------

static json_t *draw_value(void)
{
    static const char *const texts[] = {"x", "y", "z", "1"};
    switch (draw(4)) {
    case 0: return json_integer(draw(4));
    case 1: return json_real(draw(4));
    case 2: return json_boolean(draw(2));
    default: return json_string(texts[draw(4)]);
    }
}

static json_t *draw_test(void)
{
    json_t *test = json_object(), *list = json_array();
    for (unsigned i = 0; i <= draw(3); i++)
        json_array_append_new(list, draw_value());
    if (draw(3))
        json_object_set(test, draw(4) ? "in" : "not_in", list);
    if (!draw(3))
        json_object_set_new(test, draw(3) ? "eq" : "ne", draw_value());
    if (!draw(4))
        json_object_set_new(test, "lt", json_integer(draw(4)));
    if (!json_object_size(test) || !draw(6))
        json_object_set_new(test, "present", json_boolean(draw(2)));
    json_decref(list);
    return test;
}

static json_t *draw_condition(bool nested)
{
    static const char *const pointers[] = {"/a", "/b", "/c/a"};
    json_t *when = json_object();
    for (unsigned i = 0; i < 3; i++)
        if (draw(2))
            json_object_set_new(when, pointers[i], draw_test());
    if (!json_object_size(when) || (nested && !draw(3)))
        json_object_set_new(when, "any", json_pack("[oo]", draw_condition(false), draw_condition(false)));
    return when;
}

// If random arguments are allowed, each has one of the values that the narrowed schema shows.
static void a_narrowed_schema_never_allows_more_than_the_original(void **state)
{
    (void)state;
    struct identity *who = ann();
    int narrowed = 0, passed = 0;
    for (int i = 0; i < 400; i++) {
        json_t *conditions = json_array();
        for (unsigned k = 0; k <= draw(3); k++)
            json_array_append_new(conditions, draw_condition(true));
        struct policy *policy = policy_of(conditions, NULL);
        struct policy_memo *memo = policy_memo_new(policy);
        struct policy_question question = {who, "s", POLICY_TOOL, SPAN("t"), NULL};
        json_t *narrowing = policy_narrowing(memo, &question);
        narrowed += narrowing != NULL;
        for (int call = 0; narrowing && call < 200; call++) {
            json_t *args = json_pack("{s:o,s:o,s:{s:o}}", "a", draw_value(), "b", draw_value(), "c", "a", draw_value());
            question.args = args;
            if (policy_decide(memo, &question).verdict == VERDICT_ALLOW) {
                const json_t *a = json_object_get(narrowing, "/a"), *b = json_object_get(narrowing, "/b"),
                             *c = json_object_get(narrowing, "/c/a");
                passed++;
                assert_true(!a || policy_condition_has(a, json_object_get(args, "a")));
                assert_true(!b || policy_condition_has(b, json_object_get(args, "b")));
                assert_true(!c || policy_condition_has(c, json_object_get(json_object_get(args, "c"), "a")));
            }
            json_decref(args);
        }
        json_decref(narrowing);
        json_decref(conditions);
        policy_memo_free(memo);
        policy_unref(policy);
    }
    print_message("%d policies narrowed, %d calls passed\n", narrowed, passed);
    assert_true(narrowed > 50 && passed > 500);
    identity_unref(who);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_schemas_are_narrowed_as_in_the_table),
        cmocka_unit_test(only_the_rules_about_a_tool_and_its_caller_narrow_its_schema),
        cmocka_unit_test(an_enum_of_more_than_256_values_does_not_narrow_a_schema),
        cmocka_unit_test(a_narrowed_schema_never_allows_more_than_the_original),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
