// Tests files of the configuration as people write them: comments, positions of all problems, and keys of other programs.
#include "base/json_file.h"
#include "config/config.h"
#include "folder.h"
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct option_problems problems;

static struct config *load(const char *text)
{
    struct err err;
    buf_release(&problems.lines);
    problems = (struct option_problems){0};
    write_file("p.json", text);
    return config_load("p.json", &problems, &err);
}

static void comments_and_a_comma_before_the_end_are_read(void **state)
{
    (void)state;
    static const char *const good[] = {
        "// first\n{\"prefix\":false}",
        "{\"prefix\":false} // last",
        "\xEF\xBB\xBF{/* \" \\ // */\"prefix\":false,}",
        "{\"prefix\":/*a*//*b*/false/*c*/,/*d*/}",
        "{\"prefix\":false,\r\n// c\r\n}",
        "{\"prefix\":false,\"allowed_hosts\":[\"//no\",\"/*comment*/\",\"a\\\"// b\",],}",
    };
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"prefix\":false,,}", "p.json:1:17:"},
        {"{,}", "p.json:1:2:"},
        {"{\"allowed_hosts\":[,]}", "p.json:1:19:"},
        {"{\"a\":1 /* no end", "p.json:1:"},
        {"{\"prefix\":,}", "p.json:1:"},
        {"{\n/* a\n*/ prefix:1}", "p.json:3:"},
        {"/", "p.json:1:"},
        {"// only", "p.json:1:"},
        {"{\"a\":\"", "p.json:1:"},
    };
    for (size_t i = 0; i < COUNT(good); i++) {
        struct config *config = load(good[i]);
        assert_row(config && !config->prefix, good[i]);
        if (config->allowed_hosts)
            assert_string_equal(config->allowed_hosts[2], "a\"// b");
        config_unref(config);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_row(load(bad[i].text) == NULL, bad[i].text);
        assert_contains(buf_text(&problems.lines), bad[i].says);
    }
}

static void every_problem_is_reported_with_its_position(void **state)
{
    (void)state;
    unsetenv("UNIT_A");
    unsetenv("UNIT_B");
    assert_null(load("{ // a comment\n"
                     "  \"prefx\": true,\n"
                     "  \"log\": {\"level\": \"loud\"},\n"
                     "  \"mcpServers\": {\n"
                     "    \"a\": {\"command\": \"x\", \"args\": [\"${UNIT_A}\", \"${UNIT_B}${UNIT_A}\"]},\n"
                     "    \"b\": {\"url\": \"ftp://x\", \"tls\": {\"ca\": 1}}, \"ab\": {\"command\": 7},\n"
                     "    \"c\": {}\n"
                     "  }, \"listen\": [{\"address\": \"127.0.0.1:1\"}, {\"address\": \"127.0.0.1:2\", \"mod\": 1}]\n"
                     "}\n"));
    assert_string_equal(buf_text(&problems.lines),
                        "p.json:2:3: /prefx: unknown key; did you mean \"prefix\"?\n"
                        "p.json:3:11: /log/level: must be one of \"debug\", \"info\", \"warn\", \"error\", \"off\"\n"
                        "p.json:5:27: /mcpServers/a/args: the environment variable UNIT_A is not set; set it, or write "
                        "${UNIT_A:-default}\n"
                        "p.json:5:27: /mcpServers/a/args: the environment variable UNIT_B is not set; set it, or write "
                        "${UNIT_B:-default}\n"
                        "p.json:6:37: /mcpServers/b/tls/ca: unknown key\n"
                        "p.json:6:55: /mcpServers/ab/command: must be a string\n"
                        "p.json:7:5: /mcpServers/c: give either \"command\" or \"url\"\n"
                        "p.json:8:72: /listen/1/mod: unknown key; did you mean \"mode\"?\n");
    assert_int_equal(problems.count, 8);
}

static void the_error_of_a_load_is_the_first_problem(void **state)
{
    (void)state;
    struct err err;
    write_file("p.json", "{\"prefx\":1,\"lok\":2}");
    assert_null(config_load("p.json", NULL, &err));
    assert_string_equal(err.detail,
                        "p.json:1:2: /prefx: unknown key; did you mean \"prefix\"? (and 1 more; `postern config "
                        "check` prints all)");
    write_file("p.json", "{\"prefx\":1}");
    assert_null(config_load("p.json", NULL, &err));
    assert_string_equal(err.detail, "p.json:1:2: /prefx: unknown key; did you mean \"prefix\"?");
}

// ---- keys of other programs -----------------------------------------------------------------

static const struct server *only_server(const struct config *config)
{
    assert_int_equal(config->servers.count, 1);
    return config->servers.at;
}

static void servers_of_other_programs_are_understood(void **state)
{
    (void)state;
    static const struct {
        const char *server;
        int type;
        const char *url;
    } rows[] = {
        {"{\"type\":\"streamableHttp\",\"url\":\"http://h/mcp\"}", SERVER_HTTP, "http://h/mcp"},
        {"{\"transport\":\"streamable-http\",\"uri\":\"http://h/mcp\"}", SERVER_HTTP, "http://h/mcp"},
        {"{\"transportType\":\"SSE\",\"serverUrl\":\"http://h/x\"}", SERVER_SSE, "http://h/x"},
        {"{\"httpUrl\":\"http://h/mcp\",\"trust\":true}", SERVER_AUTO, "http://h/mcp"},
        {"{\"url\":\"http://h/v1/sse\"}", SERVER_SSE, "http://h/v1/sse"},
        {"{\"url\":\"http://h/sse?key=/sse\"}", SERVER_SSE, "http://h/sse?key=/sse"},
        {"{\"url\":\"http://h/mcp?a=/sse\"}", SERVER_AUTO, "http://h/mcp?a=/sse"},
        {"{\"type\":\"http\",\"url\":\"http://h/sse\"}", SERVER_HTTP, "http://h/sse"},
        {"{\"command\":\"x\",\"type\":\"stdio\",\"alwaysAllow\":[\"a\"],\"autoApprove\":[]}", SERVER_STDIO, NULL},
        {"{\"command\":\"x\",\"notes\":\"n\",\"source\":\"s\",\"description\":\"d\",\"name\":\"n\"}", SERVER_STDIO,
         NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf text = {0};
        buf_printf(&text, "{\"mcpServers\":{\"a\":%s}}", rows[i].server);
        struct config *config = load(buf_text(&text));
        if (!config)
            fail_msg("%s: %s", rows[i].server, buf_text(&problems.lines));
        const struct server *server = only_server(config);
        assert_row(server->type == rows[i].type, rows[i].server);
        if (rows[i].url)
            assert_string_equal(server->url, rows[i].url);
        config_unref(config);
        buf_release(&text);
    }
}

static void enabled_is_the_opposite_of_disabled(void **state)
{
    (void)state;
    struct config *config = load("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"enabled\":false}}}");
    assert_non_null(config);
    assert_true(only_server(config)->disabled);
    config_unref(config);
    config = load("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"enabled\":true}}}");
    assert_non_null(config);
    assert_false(only_server(config)->disabled);
    config_unref(config);
}

static void a_token_for_a_server_may_have_its_scheme(void **state)
{
    (void)state;
    static const char *const tokens[] = {"abc", "Bearer abc", "bearer abc"};
    for (size_t i = 0; i < COUNT(tokens); i++) {
        struct buf text = {0};
        buf_printf(&text, "{\"mcpServers\":{\"a\":{\"url\":\"http://127.0.0.1/\",\"authorizationToken\":\"%s\"}}}",
                   tokens[i]);
        struct config *config = load(buf_text(&text));
        assert_row(config != NULL, buf_text(&problems.lines));
        assert_string_equal(only_server(config)->auth.token, "abc");
        assert_int_equal(only_server(config)->auth.mode, ACCESS_STATIC);
        config_unref(config);
        buf_release(&text);
    }
}

static void the_environment_of_a_server_takes_numbers_and_the_form_of_editors(void **state)
{
    (void)state;
    setenv("UNIT_A", "one", 1);
    struct config *config = load("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"env\":{\"N\":8080,\"F\":1.5,\"B\":true,"
                                 "\"V\":\"${env:UNIT_A}\",\"D\":\"${env:UNIT_NO:-two}\"}}}}");
    assert_row(config != NULL, buf_text(&problems.lines));
    const struct option_pairs *env = &only_server(config)->env;
    static const char *const want[][2] = {{"N", "8080"}, {"F", "1.5"}, {"B", "true"}, {"V", "one"}, {"D", "two"}};
    assert_int_equal(env->count, COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        assert_string_equal(env->at[i].name, want[i][0]);
        assert_string_equal(env->at[i].value, want[i][1]);
    }
    config_unref(config);
}

static void variables_of_a_file_are_added_to_the_environment(void **state)
{
    (void)state;
    write_file(
        "x.env",
        "# comment\n\nexport A=0\nA=1\nB = two words # comment\nC='$x # \"\\n'\nD=\"a\\nb\\\"\" # c\r\nE=\nF=a#b\n"
        "G=from file\nH=\"${UNIT_A}\"");
    struct config *config =
        load("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"envFile\":\"x.env\",\"env\":{\"G\":\"given\"}}}}");
    if (!config)
        fail_msg("%s", buf_text(&problems.lines));
    static const char *const want[][2] = {{"G", "given"},  {"A", "1"}, {"B", "two words"}, {"C", "$x # \"\\n"},
                                          {"D", "a\nb\""}, {"E", ""},  {"F", "a#b"},       {"H", "${UNIT_A}"}};
    const struct option_pairs *env = &only_server(config)->env;
    assert_int_equal(env->count, COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++) {
        assert_string_equal(env->at[i].name, want[i][0]);
        assert_string_equal(env->at[i].value, want[i][1]);
    }
    config_unref(config);
    static const char *const wrong[] = {"A=1\nno value\n", "A=1\n=2\n", "A=1\n1A=2\n", "A=1\nB=\"open\n",
                                        "A=1\nB='a'b\n"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        write_file("x.env", wrong[i]);
        assert_row(load("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"env_file\":\"x.env\"}}}") == NULL, wrong[i]);
        assert_string_equal(buf_text(&problems.lines),
                            "p.json:1:35: /mcpServers/a/env_file: x.env:2: not a line like NAME=VALUE\n");
    }
    unlink("x.env");
    assert_null(load("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"env_file\":\"x.env\"}}}"));
    assert_contains(buf_text(&problems.lines), "/mcpServers/a/env_file: x.env: No such file");
}

static void a_hundred_problems_are_reported(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int i = 0; i < 150; i++)
        buf_printf(&text, "%s\"unknown%d\":1", i ? ",\n" : "{\"mcpServers\":7,", i);
    buf_put_char(&text, '}');
    assert_null(load(buf_text(&text)));
    assert_int_equal(problems.count, 100);
    assert_contains(buf_text(&problems.lines), "p.json:100:1: /unknown99: unknown key");
    buf_release(&text);
}

static void comments_that_do_not_end_take_no_time(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int i = 0; i < 500000; i++)
        buf_put_text(&text, i ? "/* " : "{");
    time_t before = time(NULL);
    assert_null(load(buf_text(&text)));
    assert_true(time(NULL) - before < 5);
    assert_contains(buf_text(&problems.lines), "p.json:1:");
    buf_release(&text);
}

static void a_problem_with_lines_in_it_is_one_problem(void **state)
{
    (void)state;
    assert_null(load("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"env_file\":\"a\\nb\\n\\nc\\nd\"}}}"));
    assert_string_equal(buf_text(&problems.lines),
                        "p.json:1:35: /mcpServers/a/env_file: a b  c d: No such file or directory\n");
    assert_int_equal(problems.count, 1);
}

static void a_file_that_a_server_of_a_tenant_names_is_found_in_the_file_of_the_tenant(void **state)
{
    (void)state;
    assert_null(load("{\"mcpServers\":{},\n\"tenants\":{\"t\":{\"mcpServers\":{\n"
                     "\"a\":{\"command\":\"x\",\"env_file\":\"no.env\"}}}}}"));
    assert_string_equal(buf_text(&problems.lines),
                        "p.json:3:20: /tenants/t/mcpServers/a/env_file: no.env: No such file or directory\n");
    assert_int_equal(mkdir("tenants.d", 0700), 0);
    write_file("tenants.d/u.json", "{\"mcpServers\":{\"a\":{\"url\":\"https://h\",\"tls\":{\"ca_file\":\"no.pem\"}}}}");
    assert_null(load("{}"));
    assert_contains(buf_text(&problems.lines), "tenants.d/u.json: /mcpServers/a/tls/ca_file: no.pem: ");
    unlink("tenants.d/u.json");
    rmdir("tenants.d");
}

static void a_key_without_effect_and_a_changed_name_are_noted_once(void **state)
{
    (void)state;
    struct config *config = load("{\"servers\":{\"My Server\":{\"command\":\"x\",\"autoApprove\":[],\"trust\":true},"
                                 "\"b\":{\"command\":\"x\",\"autoApprove\":[]},\"\xC3\xBC\":{\"command\":\"x\"}}}");
    assert_row(config != NULL, buf_text(&problems.lines));
    assert_string_equal(config->notes,
                        "server \"My Server\" is called \"My_Server\" here, in names of tools and in policies\n"
                        "server \"\xC3\xBC\" is called \"_\" here, in names of tools and in policies\n"
                        "autoApprove, trust: settings for clients, without effect in a gateway\n");
    assert_non_null(config_tenant_find_server(config, "default", "My_Server"));
    config_unref(config);
}

static void keys_of_other_programs_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *servers, *says;
    } rows[] = {
        {"\"a\":{\"command\":\"x\",\"enabled\":1}", "/mcpServers/a/enabled: must be true or false"},
        {"\"a\":{\"url\":\"http://h\",\"uri\":\"http://i\"}", "p.json:1:38: /mcpServers/a/uri: the same as \"url\""},
        {"\"a\":{\"url\":\"http://h\",\"authorizationToken\":7}", "/mcpServers/a/authorizationToken: must be a token"},
        {"\"a\":{\"url\":\"http://h\",\"auth\":{},\"authorizationToken\":\"x\"}",
         "/mcpServers/a/authorizationToken: the same as \"auth\", which is given too"},
        {"\"a\":{\"url\":\"http://h\",\"transport\":\"pigeon\"}",
         "p.json:1:38: /mcpServers/a/transport: must be one of"},
        {"\"a\":{\"command\":\"x\",\"timeout\":30000}", "/mcpServers/a/timeout: 30000 would be seconds; for "
                                                        "milliseconds write \"30000ms\" or 30, for seconds \"30000s\""},
        {"\"a b\":{\"command\":\"x\"},\"a_b\":{\"command\":\"x\"}",
         "/mcpServers/a b: callers would see this server as \"a_b\", like another one; rename it"},
        {"\"a b\":{\"command\":\"x\"},\"a!b\":{\"command\":\"x\"}", "/mcpServers/a!b: callers would see"},
        {"\"a\":{\"command\":\"x\",\"disabledTools\":[\"rm\"]}",
         "/mcpServers/a/disabledTools: hides tools at a client; here, select them in /profiles or in the policy"},
        {"\"a\":{\"command\":\"x\",\"b\\n\\tc\":1}", "p.json:1:16: /mcpServers/a/b  c: unknown key\n"},
        {"\"a\":{\"url\":\"http://h\",\"inherit_env\":[\"X\"]}", "/mcpServers/a/inherit_env: applies only to"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf text = {0};
        buf_printf(&text, "{\"mcpServers\":{%s}}", rows[i].servers);
        assert_row(load(buf_text(&text)) == NULL, rows[i].servers);
        assert_contains(buf_text(&problems.lines), rows[i].says);
        assert_int_equal(problems.count, 1);
        buf_release(&text);
    }
}

static void problems_are_at_the_keys_that_the_file_has(void **state)
{
    (void)state;
    assert_null(load("{\"servers\":{\n"
                     "\"My Server\":{\"command\":\"x\",\"comand\":1},\n"
                     "\"a\":{\"uri\":\"ftp://x\"}, \"b!\":{\"command\":\"x\",\"enabled\":3},\n"
                     "\"c\":{\"url\":\"http://h\",\"transport\":\"pigeon\"}\n"
                     "},\"tenants\":{\"t\":{\"mcpServers\":{\"d d\":{\"command\":\"x\",\"envFile\":1}}}}}"));
    assert_string_equal(buf_text(&problems.lines),
                        "p.json:2:28: /servers/My Server/comand: unknown key; did you mean \"command\"?\n"
                        "p.json:3:6: /servers/a/uri: must be an absolute http:// or https:// URL; put a user and "
                        "password into \"headers\", as Authorization\n"
                        "p.json:3:44: /servers/b!/enabled: must be true or false\n"
                        "p.json:4:23: /servers/c/transport: must be one of \"auto\", \"stdio\", \"http\", "
                        "\"streamable-http\", \"sse\"\n"
                        "p.json:5:54: /tenants/t/mcpServers/d d/envFile: must be a string\n");
}

static int enter(void **state) { return make_directory(state) == 0 && chdir(directory) == 0 ? 0 : -1; }

static int leave(void **state)
{
    buf_release(&problems.lines);
    return chdir("/") == 0 ? remove_directory(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comments_and_a_comma_before_the_end_are_read),
        cmocka_unit_test(every_problem_is_reported_with_its_position),
        cmocka_unit_test(the_error_of_a_load_is_the_first_problem),
        cmocka_unit_test(servers_of_other_programs_are_understood),
        cmocka_unit_test(enabled_is_the_opposite_of_disabled),
        cmocka_unit_test(a_token_for_a_server_may_have_its_scheme),
        cmocka_unit_test(the_environment_of_a_server_takes_numbers_and_the_form_of_editors),
        cmocka_unit_test(variables_of_a_file_are_added_to_the_environment),
        cmocka_unit_test(a_hundred_problems_are_reported),
        cmocka_unit_test(comments_that_do_not_end_take_no_time),
        cmocka_unit_test(a_problem_with_lines_in_it_is_one_problem),
        cmocka_unit_test(a_file_that_a_server_of_a_tenant_names_is_found_in_the_file_of_the_tenant),
        cmocka_unit_test(a_key_without_effect_and_a_changed_name_are_noted_once),
        cmocka_unit_test(keys_of_other_programs_are_checked),
        cmocka_unit_test(problems_are_at_the_keys_that_the_file_has),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
