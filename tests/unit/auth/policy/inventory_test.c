// Tests the findings that need a configuration or an inventory (E4, W5, W6, W9, W10), each also with policies that must not get it.
#include "auth/policy/policy.h"
#include "folder.h"
#include <time.h>
#include <unistd.h>

static struct policy_inventory *read_inventory(const char *name, const char *text)
{
    struct err err = {0};
    struct policy_inventory *inventory = text ? policy_inventory_read(write_in_directory(name, text), &err) : NULL;
    assert_row(!text || inventory, err.detail);
    return inventory;
}

#define HEAD "{\"version\":1,\"description\":\"a file of a test\","
#define R(id, effect, subjects, servers, kinds, names, more)                                                       \
    "{\"id\":\"" id "\",\"effect\":\"" effect "\",\"description\":\"a rule of this test\",\"tenants\":[\"acme\"]," \
    "\"subjects\":[" subjects "],\"servers\":[" servers "],\"kinds\":[" kinds "],\"names\":[" names "]" more "}"
#define RULES(rules) HEAD "\"rules\":[\n" rules "]}"
#define ENG "\"role:eng\""
#define S "\"s\""
#define TOOLS "\"tool\""
#define ALLOW(names) R("a", "allow", ENG, S, TOOLS, names, "")
#define DENY(names) R("d", "deny", "\"*\"", S, TOOLS, names, "")
#define WITH_SET(names, more) \
    HEAD "\"sets\":{\"few\":{\"description\":\"a set of names\",\"names\":[" names "]}},\"rules\":[\n" more "]}"
#define TO(subject, names) R("a", "allow", subject, S, TOOLS, names, "")

#define T(name, more) "{\"server\":\"s\",\"name\":\"" name "\",\"inputSchema\":{}" more "}"
#define READS ",\"annotations\":{\"readOnlyHint\":true}"
#define NOW "[" T("get_a", READS) "," T("get_b", READS) "," T("put_a", "") "]"
#define RESOURCES                                                                                                   \
    "[{\"server\":\"s\",\"uri\":\"file:///a\",\"name\":\"file:///c\"},{\"server\":\"t\",\"uriTemplate\":\"file:///" \
    "{x}\"}]"
#define PROMPTS "[{\"server\":\"s\",\"name\":\"greet\",\"arguments\":[]}]"

// `says` NULL: no finding of that code.
static const struct {
    const char *code, *rules, *now, *before, *says;
} rows[] = {
    {"W5", RULES(ALLOW("\"get_*\"")), NOW, NULL, NULL},
    {"W5", RULES(ALLOW("\"gte_*\"")), NOW, NULL,
     "/rules/0/names/0: \"gte_*\" matches nothing in the inventory; correct"},
    {"W5", RULES(ALLOW("\"get_*\",\"get_c\"")), NOW, NULL, "/rules/0/names/1: \"get_c\" matches nothing"},
    {"W5", RULES(ALLOW("\"get_c\"")), NULL, NULL, NULL},
    {"W5", RULES(ALLOW("\"*\"")), NOW, NULL, NULL},
    {"W5", RULES(R("a", "allow", ENG, "\"s\",\"x*\"", TOOLS, "\"get_a\"", "")), NOW, NULL,
     "/rules/0/servers/1: \"x*\" matches no server of the inventory"},
    {"W5", RULES(R("a", "allow", ENG, "\"x\"", TOOLS, "\"nothing\"", "")), NOW, NULL, "/rules/0/servers/0"},
    {"W5", RULES(R("a", "allow", ENG, S, "\"prompt\"", "\"greet\"", "")), NOW, NULL,
     NULL},  // the inventory has no prompts
    {"W5", RULES(R("a", "allow", ENG, S, "\"prompt\"", "\"greet\"", "")), NOW PROMPTS, NULL, NULL},
    {"W5", RULES(R("a", "allow", ENG, S, "\"prompt\"", "\"get_a\"", "")), NOW "\n" PROMPTS, NULL,
     "\"get_a\" matches nothing"},
    {"W5", RULES(R("a", "allow", ENG, S, "\"*\"", "\"nothing\"", "")), NOW PROMPTS, NULL, NULL},
    {"W5", RULES(R("a", "allow", ENG, S, "\"*\"", "\"nothing\"", "")), NOW PROMPTS RESOURCES, NULL, "/rules/0/names/0"},
    {"W5", RULES(R("a", "allow", ENG, S, "\"resource\"", "\"file:///*\"", "")), RESOURCES, NULL, NULL},
    {"W5", RULES(R("a", "allow", ENG, S, "\"resource\"", "\"file:///c\"", "")), RESOURCES, NULL, "/rules/0/names/0"},
    {"W5", RULES(R("a", "allow", ENG, "\"t\"", "\"resource_template\"", "\"file:///*\"", "")), RESOURCES, NULL, NULL},
    {"W5", WITH_SET("\"get_*\",\"gte_*\"", ALLOW("\"set:few\"")), NOW, NULL,
     "/sets/few/names/1: \"gte_*\" matches nothing"},
    {"W5", WITH_SET("\"get_*\",\"put_a\"", ALLOW("\"set:few\"")), NOW, NULL, NULL},
    {"W5", WITH_SET("\"gte_*\"", ALLOW("\"get_*\"")), NOW, NULL, NULL},  // no rule uses the set
    {"W5", RULES(R("a", "allow", ENG, S, TOOLS, "\"gone\"", ",\"expires\":\"2020-01-01\"")), NOW, NULL, NULL},
    {"W5", RULES(DENY("\"put_*\",\"delete_*\"")), NOW, NULL, "/rules/0/names/1: \"delete_*\""},
    {"W5", RULES(DENY("\"delete_*\"")), NOW, NULL, NULL},  // this is W10

    {"W6", RULES(ALLOW("\"get_*\"")), NOW, "[" T("get_a", "") "," T("put_a", "") "]",
     "/rules/0/names/0: \"get_*\" now also matches new items: s get_b; deny them"},
    {"W6", RULES(ALLOW("\"get_*\"")), NOW, NOW, NULL},
    {"W6", RULES(ALLOW("\"get_*\"")), NOW, NULL, NULL},
    {"W6", RULES(ALLOW("\"get_b\"")), NOW, "[" T("get_a", "") "]", NULL},  // a literal name is intended
    {"W6", RULES(R("a", "allow", ENG, "\"*\"", TOOLS, "\"get_b\"", "")), NOW, "[" T("get_a", "") "]", "s get_b"},
    {"W6", RULES(ALLOW("\"*\"")), NOW, "[" T("other", "") "]", "s get_a, s get_b, s put_a;"},
    {"W6", RULES(ALLOW("\"*\"")), "[" T("1", "") "," T("2", "") "," T("3", "") "," T("4", "") "," T("5", "") "]",
     "[" T("other", "") "]", "s 1, s 2, s 3 and 2 more;"},
    {"W6", RULES(DENY("\"get_*\"")), NOW, "[" T("get_a", "") "]", NULL},
    {"W6", WITH_SET("\"get_*\"", ALLOW("\"set:few\"")), NOW, "[" T("get_a", "") "]", "\"set:few\" now also matches"},
    {"W6", RULES(R("a", "allow", ENG, S, "\"prompt\"", "\"*\"", "")), NOW PROMPTS, NOW, "s greet"},
    {"W6", RULES(R("a", "allow", ENG, S, TOOLS, "\"*\"", ",\"expires\":\"2020-01-01\"")), NOW, "[" T("get_a", "") "]",
     NULL},

    {"W9", RULES(TO("\"authenticated\"", "\"put_*\"")), NOW, NULL, "/rules/0/subjects: every caller may call tools"},
    {"W9", RULES(TO("\"*\"", "\"put_*\"")), NOW, NULL, "s put_a;"},
    {"W9", RULES(TO("\"authenticated\"", "\"get_*\"")), NOW, NULL, NULL},
    {"W9", RULES(TO("\"authenticated\"", "\"get_*\"")), "[" T("get_a", ",\"annotations\":{\"readOnlyHint\":false}") "]",
     NULL, "s get_a"},
    {"W9", RULES(TO(ENG, "\"put_*\"")), NOW, NULL, NULL},
    {"W9", RULES(TO("\"anonymous\"", "\"put_*\"")), NOW, NULL, NULL},
    {"W9",
     HEAD "\"groups\":{\"all\":{\"description\":\"every user here\",\"members\":[\"authenticated\"]}},\"rules\":[" TO(
         "\"group:all\"", "\"put_*\"") "]}",
     NOW, NULL, "s put_a"},
    {"W9", RULES(R("d", "deny", "\"*\"", S, TOOLS, "\"put_*\"", "")), NOW, NULL, NULL},
    {"W9", RULES(R("a", "allow", "\"authenticated\"", S, "\"prompt\"", "\"*\"", "")), NOW PROMPTS, NULL, NULL},
    {"W9", RULES(TO("\"authenticated\"", "\"put_*\"")), NULL, NULL, NULL},

    {"W10", RULES(DENY("\"put_*\"")), NOW, NULL, NULL},
    {"W10", RULES(DENY("\"delete_*\"")), NOW, NULL,
     "/rules/0/names: the rule never denies: matches nothing in the inventory"},
    {"W10", RULES(DENY("\"delete_*\",\"put_a\"")), NOW, NULL, NULL},
    {"W10", RULES(R("d", "deny", "\"*\"", S, "\"prompt\"", "\"put_a\"", "")), NOW, NULL,
     NULL},  // the inventory has no prompts
    {"W10", RULES(R("d", "deny", "\"*\"", S, "\"prompt\"", "\"put_a\"", "")), NOW PROMPTS, NULL,
     "the rule never denies"},
    {"W10", RULES(R("d", "deny", "\"*\"", "\"u*\"", TOOLS, "\"*\"", "")), NULL, NULL,
     "/rules/0/servers: the rule never denies: no such server"},
    {"W10", RULES(R("d", "deny", "\"*\"", "\"t*\"", TOOLS, "\"*\"", "")), NULL, NULL, NULL},
    {"W10",
     HEAD "\"rules\":[{\"id\":\"d\",\"effect\":\"deny\",\"description\":\"a rule of this test\",\"tenants\":[\"x*\"],"
          "\"subjects\":[\"*\"],\"servers\":[\"s\"],\"kinds\":[\"tool\"],\"names\":[\"*\"]}]}",
     NULL, NULL, "/rules/0/tenants: the rule never denies: no such tenant"},
    {"W10", RULES(ALLOW("\"delete_*\"")), NOW, NULL, NULL},

    {"E4", RULES(R("a", "allow", "\"user:corp:ann\"", S, TOOLS, "\"n\"", "")), NULL, NULL, NULL},
    {"E4", RULES(R("a", "allow", "\"user:crop:ann\"", S, TOOLS, "\"n\"", "")), NULL, NULL,
     "/rules/0/subjects: \"user:crop:ann\": provider \"crop\" does not exist in the configuration; did you mean "
     "\"corp\"?"},
    {"E4", RULES(R("a", "allow", ENG, "\"ss\"", TOOLS, "\"n\"", "")), NULL, NULL,
     "/rules/0/servers: server \"ss\" does not exist in the configuration"},
    {"E4", RULES(R("a", "allow", ENG, "\"ss*\"", TOOLS, "\"n\"", "")), NULL, NULL, NULL},
    {"E4",
     HEAD "\"rules\":[{\"id\":\"a\",\"effect\":\"allow\",\"description\":\"a rule of this test\",\"tenants\":[\"acm\"],"
          "\"subjects\":[\"role:a\"],\"servers\":[\"s\"],\"kinds\":[\"tool\"],\"names\":[\"n\"]}]}",
     NULL, NULL, "/rules/0/tenants: tenant \"acm\" does not exist in the configuration; did you mean \"acme\"?"},
    {"E4",
     HEAD "\"groups\":{\"g\":{\"description\":\"another user\",\"members\":[\"user:ldap:x\"]}},\"rules\":[" R(
         "a", "allow", "\"group:g\"", S, TOOLS, "\"n\"", "") "]}",
     NULL, NULL, "/groups/g: \"user:ldap:x\": provider \"ldap\" does not exist in the configuration"},
};

static void findings_of_an_inventory_match_the_table(void **state)
{
    (void)state;
    static const char *const servers[] = {"s", "t", "x", NULL}, *const tenants[] = {"default", "acme", NULL},
                             *const providers[] = {"corp", NULL};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        struct policy_findings findings = {0};
        struct policy_inventory *now = read_inventory("now.json", rows[i].now),
                                *before = read_inventory("before.json", rows[i].before);
        struct policy_load load = {.path = write_in_directory("policy.json", rows[i].rules),
                                   .now = (int64_t)time(NULL),
                                   .servers = servers,
                                   .tenants = tenants,
                                   .providers = providers,
                                   .inventory = now,
                                   .before = before};
        struct policy *policy = policy_load(&load, &findings, &err);
        bool said = false, right = false;
        for (size_t k = 0; k < findings.count; k++) {
            const struct policy_finding *finding = &findings.at[k];
            if (strcmp(finding->code, rows[i].code) != 0)
                continue;
            said = true;
            right = right || (rows[i].says && strstr(finding->text, rows[i].says));
            assert_row(!finding->rule || finding->line > 0, finding->text);
            if (!rows[i].says || !right)
                print_error("%s %s\n", finding->code, finding->text);
        }
        assert_row(rows[i].says ? right : !said, rows[i].rules);
        assert_row((policy == NULL) == (rows[i].code[0] == 'E' && rows[i].says), err.detail);
        policy_unref(policy);
        policy_findings_release(&findings);
        policy_inventory_free(now);
        policy_inventory_free(before);
    }
}

static void a_document_that_is_not_an_inventory_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "[]",
        "{}",
        "[1]",
        "[{\"server\":\"s\"}]",
        "[{\"name\":\"n\"}]",
        "[{\"server\":1,\"name\":\"n\"}]",
        "[{\"server\":\"s\",\"name\":\"n\",\"name\":\"m\"}]",
        "[{\"server\":\"s\",\"name\":\"n\"}",
        "[{\"server\":\"s\",\"name\":\"n\"}] x",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct err err = {0};
        assert_null(policy_inventory_read(write_in_directory("now.json", texts[i]), &err));
        assert_contains(err.detail, "not an inventory");
    }
    struct err err = {0};
    assert_null(policy_inventory_read("/nowhere/inventory.json", &err));
    assert_contains(err.detail, "No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(findings_of_an_inventory_match_the_table),
                                       cmocka_unit_test(a_document_that_is_not_an_inventory_is_refused)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
