// Tests the configuration: defaults, every check with its error, loopback addresses, and where the file is searched.
#include "base/log.h"
#include "config/config.h"
#include "folder.h"
#include <sys/stat.h>
#include <unistd.h>

static struct config *parse(const char *text, struct err *err)
{
    *err = (struct err){0};
    json_t *tree = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_row(tree != NULL, text);
    struct config *config = config_parse(tree, "p.json", err);
    json_decref(tree);
    return config;
}

static void an_empty_configuration_has_the_defaults(void **state)
{
    (void)state;
    struct err err;
    struct config *c = parse("{}", &err);
    assert_non_null(c);
    assert_int_equal(c->listen.count, 0);
    assert_int_equal(c->servers.count, 0);
    assert_int_equal(c->auth.providers.count, 1);
    assert_true(c->prefix);
    assert_string_equal(c->separator, "__");
    assert_int_equal(c->log.level, LOG_INFO);
    assert_int_equal(c->log.format, LOG_FORMAT_TEXT);
    assert_int_equal(c->limits.max_body, 64 << 20);
    assert_int_equal(c->limits.max_message, 80 << 20);
    assert_int_equal(c->limits.page_size, 1000);
    assert_int_equal(c->limits.replay_events, 256);
    assert_int_equal(c->timeouts.list_ms, 5000);
    assert_int_equal(c->timeouts.stream_after_ms, 1000);
    assert_int_equal(c->timeouts.heartbeat_ms, 15000);
    assert_int_equal(c->timeouts.session_idle_ms, 3600000);
    assert_int_equal(c->timeouts.shutdown_ms, 5000);
    config_unref(c);
}

static void servers_are_read_with_their_type(void **state)
{
    (void)state;
    struct err err;
    struct config *c = parse("{\"mcpServers\":{\"a\":{\"command\":\"x\",\"args\":[\"1\"],\"env\":{\"K\":\"v\"}},"
                             "\"b\":{\"url\":\"https://h/mcp\",\"type\":\"streamable-http\"},"
                             "\"c\":{\"url\":\"http://h\",\"prefix\":false,\"isolation\":\"session\"},"
                             "\"d\":{\"url\":\"http://h/sse\",\"type\":\"sse\",\"prefix\":\"dd\",\"timeout\":\"5s\"}}}",
                             &err);
    if (!c)
        fail_msg("%s", err.detail);
    static const struct {
        const char *name, *prefix;
        int type;
    } rows[] = {{"a", NULL, SERVER_STDIO}, {"b", NULL, SERVER_HTTP}, {"c", "", SERVER_AUTO}, {"d", "dd", SERVER_SSE}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct server *server = config_tenant_find_server(c, "default", rows[i].name);
        assert_non_null(server);
        assert_int_equal(server->type, rows[i].type);
        assert_row(rows[i].prefix ? strcmp(server->prefix, rows[i].prefix) == 0 : !server->prefix, rows[i].name);
    }
    assert_null(config_tenant_find_server(c, "default", "e"));
    assert_int_equal(config_tenant_find_server(c, "default", "a")->timeout_ms, 60000);
    assert_int_equal(config_tenant_find_server(c, "default", "d")->timeout_ms, 5000);
    assert_int_equal(config_tenant_find_server(c, "default", "c")->isolation, SERVER_PER_SESSION);
    config_unref(c);
}

static void has_control_path(const char *text, const char *path)
{
    struct err err;
    struct config *c = text ? parse(text, &err) : NULL;
    assert_true(!text || c);
    char *got = config_control_path(c);
    assert_row(path ? got && strcmp(got, path) == 0 : !got, text ? text : "no configuration");
    free(got);
    config_unref(c);
}

static void the_control_socket_is_that_of_the_configuration_or_the_default(void **state)
{
    (void)state;
    unsetenv("XDG_RUNTIME_DIR");
    has_control_path("{}", NULL);
    has_control_path(NULL, NULL);
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    has_control_path("{}", NULL);
    setenv("XDG_RUNTIME_DIR", "/run/user/1", 1);
    has_control_path("{}", "/run/user/1/postern.sock");
    has_control_path(NULL, "/run/user/1/postern.sock");
    has_control_path("{\"control\":\"/x.sock\"}", "/x.sock");
    has_control_path("{\"control\":\"\"}", NULL);
    unsetenv("XDG_RUNTIME_DIR");
}

#define SERVERS(text) "{\"mcpServers\":{" text "}}"
#define LISTEN(address) "{\"listen\":[{\"address\":\"" address "\"}]}"

// A configuration with the servers "files" and "mem" and this profile "dev".
#define PROFILE(text) \
    "{\"mcpServers\":{\"files\":{\"command\":\"x\"},\"mem\":{\"command\":\"x\"}},\"profiles\":{\"dev\":" text "}}"
#define TOOLS(text) PROFILE("{\"tools\":{\"files\":" text "}}")
#define DEV "p.json: /profiles/dev"

// An invalid configuration, the path that the error must name, and its advice.
static const struct wrong_row {
    const char *text, *path, *says;
} wrongs[] = {
    {"{\"mcpServer\":{}}", "p.json: /mcpServer:", "did you mean \"mcpServers\"?"},
    {"{\"limits\":{\"max_bodi\":1}}", "p.json: /limits/max_bodi:", "did you mean \"max_body\"?"},
    {"{\"log\":{\"level\":\"verbose\"}}", "p.json: /log/level:", "one of \"debug\", \"info\""},
    {"{\"prefix\":\"x\"}", "p.json: /prefix:", "true or false"},
    {"{\"separator\":\"\"}", "p.json: /separator:", "1 to 8 of the characters"},
    {"{\"control\":\"run/x.sock\"}", "p.json: /control:", "write one from the root, at most 107 bytes long"},
    {"{\"control\":true}", "p.json: /control:", "a string"},
    {"{\"separator\":\":\"}", "p.json: /separator:", "1 to 8 of the characters"},
    {"{\"separator\":\"_________\"}", "p.json: /separator:", "1 to 8 of the characters"},
    {"{\"limits\":{\"max_body\":100}}", "p.json: /limits/max_body:", "between 1024 and"},
    {"{\"limits\":{\"max_body\":\"2GiB\"}}", "p.json: /limits/max_body:", "between 1024 and"},
    {"{\"limits\":{\"page_size\":0}}", "p.json: /limits/page_size:", "between 1 and 100000"},
    {"{\"timeouts\":{\"heartbeat\":0.01}}", "p.json: /timeouts/heartbeat:", "between 100 and"},
    {"{\"timeouts\":{\"list\":\"soon\"}}", "p.json: /timeouts/list:", "a duration"},
    {"{\"auth\":{\"providers\":[]}}", "p.json: /auth/providers:", "at least one provider"},
    {"{\"auth\":{\"providers\":[{\"type\":\"magic\"}]}}", "p.json: /auth/providers/0/type:", "\"none\""},
    {"{\"listen\":{}}", "p.json: /listen:", "an array of objects"},
    {LISTEN("8080"), "p.json: /listen/0/address:", "ADDRESS:PORT"},
    {LISTEN(":8080"), "p.json: /listen/0/address:", "ADDRESS:PORT"},
    {LISTEN("127.0.0.1:"), "p.json: /listen/0/address:", "ADDRESS:PORT"},
    {LISTEN("127.0.0.1:http"), "p.json: /listen/0/address:", "ADDRESS:PORT"},
    {LISTEN(""), "p.json: /listen/0/address:", "ADDRESS:PORT"},
    {LISTEN("0.0.0.0:80"), "p.json: /listen/0/address:", "0.0.0.0:80 is not loopback"},
    {LISTEN("[::]:80"), "p.json: /listen/0/address:", "is not loopback"},
    {LISTEN("127.evil.org:80"), "p.json: /listen/0/address:", "is not loopback"},
    {"{\"listen\":[{},{\"address\":\"example.org:80\"}]}", "p.json: /listen/1/address:", "authenticating proxy"},
    {SERVERS("\"\":{\"command\":\"x\"}"), "p.json: /mcpServers/:", "a server's name is"},
    {SERVERS("\"a b\":{\"command\":\"x\"}"), "p.json: /mcpServers/a b:", "a server's name is"},
    {SERVERS("\"a/b\":{\"command\":\"x\"}"), "p.json: /mcpServers/a/b:", "a server's name is"},
    {SERVERS("\"a\":{}"), "p.json: /mcpServers/a:", "either \"command\" or \"url\""},
    {SERVERS("\"a\":{\"command\":\"x\",\"url\":\"http://h\"}"), "p.json: /mcpServers/a:", "either \"command\" or"},
    {SERVERS("\"a\":{\"command\":\"x\",\"type\":\"http\"}"), "p.json: /mcpServers/a/type:", "\"http\" needs a \"url\""},
    {SERVERS("\"a\":{\"url\":\"http://h\",\"type\":\"stdio\"}"), "p.json: /mcpServers/a/type:", "needs a \"command\""},
    {SERVERS("\"a\":{\"url\":\"ftp://h\"}"), "p.json: /mcpServers/a/url:", "absolute http:// or https://"},
    {SERVERS("\"a\":{\"url\":\"http://u:p@h/\"}"), "p.json: /mcpServers/a/url:", "put a user and password"},
    {SERVERS("\"a\":{\"url\":\"http://h\",\"headers\":{\"X\":\"a\\nY: b\"}}"),
     "p.json: /mcpServers/a/headers/X:", "line break"},
    {SERVERS("\"a\":{\"url\":\"http://h\",\"headers\":{\"X Y\":\"a\"}}"),
     "p.json: /mcpServers/a/headers:", "is not a header name"},
    {SERVERS("\"a\":{\"url\":\"http://h\",\"auth\":{\"mode\":\"static\",\"token\":\"a\\r\"}}"),
     "p.json: /mcpServers/a/auth/token:", "line break"},
    {SERVERS("\"a\":{\"url\":\"/mcp\"}"), "p.json: /mcpServers/a/url:", "absolute http:// or https://"},
    {SERVERS("\"a\":{\"url\":\"\"}"), "p.json: /mcpServers/a/url:", "absolute http:// or https://"},
    {SERVERS("\"a\":{\"command\":\"x\",\"prefix\":\"a:b\"}"), "p.json: /mcpServers/a/prefix:", "1 to 48 letters"},
    {SERVERS("\"a\":{\"command\":\"x\",\"prefix\":true}"), "p.json: /mcpServers/a/prefix:", "a string or false"},
    {SERVERS("\"a\":{\"command\":\"x\"},\"b\":{\"command\":\"x\",\"prefix\":\"a\"}"),
     "p.json: /mcpServers/b/prefix:", "\"a\" is used by \"a\" already"},
    {SERVERS("\"a\":{\"comand\":\"x\"}"), "p.json: /mcpServers/a/comand:", "did you mean \"command\"?"},
    {SERVERS("\"a\":{\"command\":\"x\",\"timeout\":0}"), "p.json: /mcpServers/a/timeout:", "between 1 and"},
    {SERVERS("\"a\":{\"command\":\"x\",\"tool_timeouts\":{\"t\":\"0s\"}}"),
     "p.json: /mcpServers/a/tool_timeouts/t:", "is not a duration"},
    {SERVERS("\"a\":{\"command\":\"x\",\"tool_timeouts\":{\"t\":\"25h\"}}"),
     "p.json: /mcpServers/a/tool_timeouts/t:", "is not a duration"},
    {SERVERS("\"a\":{\"command\":\"x\",\"tool_timeouts\":{\"t\":\"soon\"}}"),
     "p.json: /mcpServers/a/tool_timeouts/t:", "is not a duration"},
    {SERVERS("\"a\":{\"command\":\"x\",\"env\":{\"K\":1}}"), "p.json: /mcpServers/a/env:", "an object of strings"},
    {SERVERS("\"a\":{\"command\":\"${UNIT_UNSET}\"}"), "p.json: /mcpServers/a/command:", "UNIT_UNSET is not set"},
    {SERVERS("\"a\":{\"command\":\"x\",\"eager\":true,\"isolation\":\"user\"}"),
     "p.json: /mcpServers/a/eager:", "\"shared\""},
    {SERVERS("\"a\":{\"url\":\"http://h\",\"eager\":true,\"auth\":{\"mode\":\"per_user\"}}"),
     "p.json: /mcpServers/a/eager:", "\"shared\""},
    {SERVERS("\"a\":{\"command\":\"x\",\"idle_timeout\":\"soon\"}"),
     "p.json: /mcpServers/a/idle_timeout:", "or \"never\""},
    {SERVERS("\"a\":{\"command\":\"x\",\"idle_timeout\":0}"), "p.json: /mcpServers/a/idle_timeout:", "between"},
    {SERVERS("\"a\":{\"command\":\"x\",\"max_idle_timeout\":30}"),
     "p.json: /mcpServers/a/min_idle_timeout:", "max_idle_timeout"},
    {"{\"catalogue\":{\"fresh\":2592001}}", "p.json: /catalogue/fresh:", ""},
    {SERVERS("\"a\":{\"command\":\"x\",\"isolation\":\"none\"}"), "p.json: /mcpServers/a/isolation:", "\"shared\""},
    {SERVERS("\"a\":[]"), "p.json: /mcpServers/a:", "must be an object"},
    {PROFILE("{\"server\":[]}"), DEV "/server:", "did you mean \"servers\"?"},
    {PROFILE("{\"servers\":[]}"), DEV "/servers:", "omit it to include all"},
    {PROFILE("{\"servers\":[\"filez\"]}"),
     DEV "/servers:", "server \"filez\" does not exist in this tenant; did you mean \"files\"?"},
    {PROFILE("{\"servers\":[\"mem\",\"files\",\"mem\"]}"), DEV "/servers:", "\"mem\" is listed twice"},
    {PROFILE("{\"prefix\":\"x\"}"), DEV "/prefix:", "true or false"},
    {PROFILE("{\"tools\":{\"men\":{}}}"), DEV "/tools:", "did you mean \"mem\"?"},
    {PROFILE("{\"servers\":[\"mem\"],\"tools\":{\"files\":{}}}"), DEV "/tools/files:", "not in \"servers\""},
    {TOOLS("{\"alow\":[]}"), DEV "/tools/files/alow:", "did you mean \"allow\"?"},
    {TOOLS("{\"allow\":\"*\"}"), DEV "/tools/files/allow:", "an array of strings"},
    {TOOLS("{\"allow\":[\"\"]}"), DEV "/tools/files/allow:", "is not a valid pattern"},
    {TOOLS("{\"allow\":[\"a\\\\b\"]}"), DEV "/tools/files/allow:", "is not a valid pattern"},
    {TOOLS("{\"allow\":[\"read_*\"],\"override\":{\"write\":{}}}"),
     DEV "/tools/files/override/write:", "this tool matches no pattern"},
    {TOOLS("{\"override\":{\"a\":{\"descripton\":\"x\"}}}"),
     DEV "/tools/files/override/a/descripton:", "\"description\"?"},
    {TOOLS("{\"override\":{\"a\":{\"name\":\"\"}}}"), DEV "/tools/files/override/a/name:", "1 to 64 letters"},
    {TOOLS("{\"override\":{\"a\":{\"name\":\"b c\"}}}"), DEV "/tools/files/override/a/name:", "1 to 64 letters"},
    {TOOLS("{\"override\":{\"a\":{\"name\":\"x\"},\"b\":{\"name\":\"x\"}}}"),
     DEV "/tools/files/override/b/name:", "\"x\" is already the name of \"a\""},
    {PROFILE("{\"tools\":{\"mem\":{\"override\":{\"a\":{\"name\":\"x\"}}},\"files\":{\"override\":{\"a\":{\"name\":"
             "\"x\"}}}}}"),
     DEV "/tools/files/override/a/name:", "already"},
    {"{\"profiles\":{\"a b\":{}}}", "p.json: /profiles/a b:", "a profile's name is"},
    {"{\"profiles\":{\"..\":{}}}", "p.json: /profiles/..:", "a profile's name is"},
    {"{\"profiles\":{\"\":{}}}", "p.json: /profiles/:", "a profile's name is"},
    {"{\"profiles\":{\"a/b\":{}}}", "p.json: /profiles/a/b:", "a profile's name is"},
    {"{\"mcpServers\":{\"a\":{\"command\":\"x\"}},\"tenants\":{\"acme\":{\"profiles\":{\"dev\":{\"servers\":[\"a\"]}}}}"
     "}",
     "p.json: /tenants/acme/profiles/dev/servers:", "server \"a\" does not exist in this tenant"},
};

static void an_invalid_configuration_is_refused_with_path_and_advice(void **state)
{
    (void)state;
    unsetenv("UNIT_UNSET");
    for (size_t i = 0; i < COUNT(wrongs); i++) {
        struct err err;
        struct config *config = parse(wrongs[i].text, &err);
        config_unref(config);
        assert_row(config == NULL, wrongs[i].text);
        assert_int_equal(err.code, ERR_CONFIG);
        assert_contains(err.detail, wrongs[i].path);
        assert_contains(err.detail, wrongs[i].says);
    }
}

static void a_valid_configuration_is_accepted(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"$schema\":\"x\"}",
        "{\"separator\":\"-\"}",
        "{\"listen\":[]}",
        "{\"listen\":[{}]}",
        LISTEN("[::1]:8080"),
        LISTEN("localhost:0"),
        LISTEN("127.0.0.9:65535"),
        SERVERS("\"a\":{\"command\":\"x\",\"prefix\":false},\"b\":{\"command\":\"x\",\"prefix\":false}"),
        SERVERS("\"A.b_c-9\":{\"command\":\"x\",\"disabled\":true}"),
        SERVERS("\"a\":{\"command\":\"x\",\"eager\":true,\"idle_timeout\":\"never\"}"),
        SERVERS("\"a\":{\"command\":\"x\",\"idle_timeout\":\"adaptive\",\"min_idle_timeout\":\"2m\",\"max_idle_"
                "timeout\":120}"),
        "{\"catalogue\":{\"path\":false,\"fresh\":0}}",
        SERVERS("\"a\":{\"command\":\"${UNIT_UNSET:-x}\",\"timeout\":0.5}"),
        PROFILE("{}"),
        PROFILE("{\"servers\":[\"mem\",\"files\"],\"prefix\":false}"),
        TOOLS("{\"allow\":[],\"override\":{}}"),
        TOOLS("{\"allow\":[\"a*\"],\"override\":{\"ab\":{\"name\":\"x/"
              "y.z\",\"title\":\"T\",\"description\":\"\"},\"ac\":{}}}"),
        "{\"tenants\":{\"b\":{\"mcpServers\":{\"a\":{\"command\":\"x\"}},\"profiles\":{\"d\":{\"servers\":[\"a\"]}}}}}",
    };
    unsetenv("UNIT_UNSET");
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct err err;
        struct config *config = parse(texts[i], &err);
        if (!config)
            print_error("%s\n", err.detail);
        assert_row(config != NULL, texts[i]);
        config_unref(config);
    }
}

static void loopback_addresses_are_distinguished_from_others(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        bool loopback;
    } rows[] = {
        {"127.0.0.1:8080", true},
        {"127.255.255.254:1", true},
        {"localhost:0", true},
        {"[::1]:8080", true},
        {"0.0.0.0:80", false},
        {"[::]:80", false},
        {"192.168.0.1:80", false},
        {"example.org:80", false},
        {"localhost.org:80", false},
        {"127.0.0.1.org:80", false},
        {"127.evil.org:80", false},
        {"127.1.evil.io:80", false},
        {"127.0.0.1", false},
        {"localhost", false},
        {"", false},
        {":80", false},
        {"::1:80", false},
        {"127.0.0.256:80", false},
        {"1270.0.0.1:80", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_row(config_listener_is_loopback(rows[i].address) == rows[i].loopback, rows[i].address);
}

static void secrets_of_servers_are_not_shown(void **state)
{
    (void)state;
    struct err err;
    struct config *c = parse(SERVERS("\"a\":{\"command\":\"x\",\"env\":{\"TOKEN\":\"hunter2\"}},"
                                     "\"b\":{\"url\":\"http://h\",\"headers\":{\"Authorization\":\"hunter2\"}}"),
                             &err);
    json_t *shown = option_show(&config_options, c);
    char *text = json_dumps(shown, 0);
    assert_null(strstr(text, "hunter2"));
    assert_contains(text, "TOKEN");
    free(text);
    json_decref(shown);
    config_unref(c);
}

// ---- files ----------------------------------------------------------------------------------

static int enter_dir(void **state) { return make_directory(state) == 0 && chdir(directory) == 0 ? 0 : -1; }

static int leave_dir(void **state)
{
    unlink("xdg/postern/postern.json");
    rmdir("xdg/postern");
    rmdir("xdg");
    return chdir("/") == 0 ? remove_directory(state) : -1;
}

static void assert_path(const char *given, const char *want)
{
    char *path = config_path(given);
    if (want)
        assert_string_equal(path, want);
    else
        assert_null(path);
    free(path);
}

static void the_configuration_file_is_looked_for_in_order(void **state)
{
    (void)state;
    unsetenv("POSTERN_CONFIG");
    setenv("HOME", "/nonexistent", 1);
    setenv("XDG_CONFIG_HOME", "xdg", 1);
    assert_path(NULL, NULL);
    mkdir("xdg", 0700);
    mkdir("xdg/postern", 0700);
    write_file("xdg/postern/postern.json", "{}");
    assert_path(NULL, "xdg/postern/postern.json");
    write_file("postern.json", "{}");
    assert_path(NULL, "postern.json");
    setenv("POSTERN_CONFIG", "named.json", 1);
    assert_path(NULL, "named.json");
    assert_path("given.json", "given.json");
    unsetenv("POSTERN_CONFIG");
}

static void a_configuration_file_is_loaded_or_named_in_the_error(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        enum err_code code;
    } rows[] = {
        {"{\n \"prefix\": maybe\n}", "other.json:2:", ERR_PARSE},
        {"{\"prefix\":true,\"prefix\":false}", "duplicate", ERR_PARSE},
        {"", "other.json:", ERR_PARSE},
        {"[]", "other.json:1:1: /: must be an object", ERR_CONFIG},
        {"{\"prefix\":1}", "other.json:1:2: /prefix: must be true or false", ERR_CONFIG},
    };
    struct err err = {0};
    assert_null(config_load("missing.json", NULL, &err));
    assert_int_equal(err.code, ERR_CONFIG);
    assert_contains(err.detail, "missing.json: No such file");
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_file("other.json", rows[i].text);
        assert_null(config_load("other.json", NULL, &err));
        assert_int_equal(err.code, rows[i].code);
        assert_contains(err.detail, rows[i].says);
    }
    write_file("other.json", "{\"prefix\":false}");
    struct config *config = config_load("other.json", NULL, &err);
    assert_non_null(config);
    assert_false(config->prefix);
    config_unref(config);
}

// ---- tenants.d ------------------------------------------------------------------------------

#define TENANTS_D(name) "tenants.d/" name

static const char *const tenant_files[] = {TENANTS_D("zeta.json"), TENANTS_D("acme.json"),  TENANTS_D(".hidden.json"),
                                           TENANTS_D("note.txt"),  TENANTS_D("acme.json~"), TENANTS_D(".json")};

static int make_tenants_d(void **state)
{
    (void)state;
    return mkdir("tenants.d", 0700);
}

static int remove_tenants_d(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(tenant_files); i++)
        unlink(tenant_files[i]);
    rmdir(TENANTS_D("folder.json"));
    return rmdir("tenants.d");
}

static void each_file_in_tenants_d_defines_a_tenant(void **state)
{
    (void)state;
    static const char *const want[] = {"inside", "acme", "zeta"};
    struct err err;
    write_file("other.json", "{\"tenants\":{\"inside\":{}}}");
    for (size_t i = 0; i < COUNT(tenant_files); i++)
        write_file(tenant_files[i],
                   i < 2 ? "{\"$schema\":\"x\",\"mcpServers\":{\"a\":{\"command\":\"${UNIT_UNSET:-x}\"}},"
                           "\"profiles\":{\"dev\":{\"servers\":[\"a\"]}},\"policy\":\"p\"}"
                         : "not read");
    struct config *config = config_load("other.json", NULL, &err);
    if (!config)
        fail_msg("%s", err.detail);
    const struct config_tenant *tenants = config->tenants.at;
    assert_int_equal(config->tenants.count, COUNT(want));
    for (size_t i = 0; i < COUNT(want); i++)
        assert_string_equal(tenants[i].name, want[i]);
    assert_int_equal(tenants[1].servers.count, 1);
    assert_string_equal(((const struct server *)tenants[1].servers.at)->command, "x");
    assert_int_equal(tenants[1].profiles.count, 1);
    assert_string_equal(tenants[1].policy, "p");
    config_unref(config);
    config = config_load_literal("other.json", &err);
    assert_non_null(config);
    json_t *shown = option_show(&config_options, config);
    char *text = json_dumps(shown, 0);
    assert_contains(text, "\"zeta\"");
    assert_contains(text, "${UNIT_UNSET:-x}");
    free(text);
    json_decref(shown);
    config_unref(config);
}

static void an_invalid_file_in_tenants_d_stops_the_start_and_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{\"mcpServer\":{}}", "tenants.d/acme.json:1:2: /mcpServer: unknown key; did you mean \"mcpServers\"?"},
        {"{\"listen\":[]}", "tenants.d/acme.json:1:2: /listen: unknown key"},
        {"{", "tenants.d/acme.json:1:"},
        {"", "tenants.d/acme.json:"},
        {"[]", "tenants.d/acme.json:1:1: /: must be an object"},
        {"{\"policy\":\"a\",\"policy\":\"b\"}", "tenants.d/acme.json:1:"},
        {"{\"mcpServers\":{\"a\":{}}}", "tenants.d/acme.json:1:16: /mcpServers/a:"},
        {"{\"mcpServers\":{\"a\":{\"command\":\"${UNIT_UNSET}\"}}}",
         "tenants.d/acme.json:1:21: /mcpServers/a/command:"},
        {"{\"mcpServers\":{\"a\":{\"command\":\"x\"},\"b\":{\"command\":\"x\",\"prefix\":\"a\"}}}",
         "tenants.d/acme.json:1:55: /mcpServers/b/prefix:"},
        {"{\"profiles\":{\"dev\":{\"servers\":[\"top\"]}}}", "tenants.d/acme.json:1:21: /profiles/dev/servers:"},
    };
    struct err err;
    write_file("other.json", "{\"mcpServers\":{\"top\":{\"command\":\"x\"}}}");
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_file(TENANTS_D("acme.json"), rows[i].text);
        assert_row(config_load("other.json", NULL, &err) == NULL, rows[i].text);
        assert_contains(err.detail, rows[i].says);
    }
    write_file(TENANTS_D("acme.json"), "{}");
    write_file("other.json", "{\"tenants\":{\"acme\":{}}}");
    assert_null(config_load("other.json", NULL, &err));
    assert_contains(err.detail, "tenants.d/acme.json:1:1: /: tenant \"acme\" is in the configuration already");
    write_file("other.json", "{}");
    mkdir(TENANTS_D("folder.json"), 0700);
    assert_null(config_load("other.json", NULL, &err));
    assert_contains(err.detail, "tenants.d/folder.json: ");
    rmdir(TENANTS_D("folder.json"));
    assert_int_equal(rename(TENANTS_D("acme.json"), TENANTS_D("default.json")), 0);
    assert_null(config_load("other.json", NULL, &err));
    assert_contains(err.detail, "tenants.d/default.json:1:1: /: a tenant's name");
    assert_int_equal(rename(TENANTS_D("default.json"), TENANTS_D("acme.json")), 0);
}

// The requirements of per_user and of assertions are checked in the main file and in tenants.d. The error names the file that
// has the server.
// Removes ":LINE:COLUMN" after the name of the file.
static void drop_position(char *detail)
{
    char *file = strstr(detail, ".json:"), *end = file ? strstr(file, ": ") : NULL;
    if (end)
        memmove(file + 5, end, strlen(end) + 1);
}

static void H13_a_server_in_a_tenant_has_the_same_requirements_as_one_at_the_top(void **state)
{
    (void)state;
#define OWN "{\"mcpServers\":{\"files\":{\"url\":\"https://x.example/mcp\",\"auth\":{\"mode\":\"per_user\"}}}}"
#define TOLD                                                                                \
    "{\"mcpServers\":{\"files\":{\"url\":\"https://x.example/mcp\",\"isolation\":\"user\"," \
    "\"auth\":{\"assertion\":{\"key_file\":\"k.pem\"}}}}}"
#define PROXY "\"policy\":\"p\",\"auth\":{\"providers\":[{\"type\":\"forwarded-user\",\"trusted_proxies\":[\"::1\"]}]}"
    static const struct {
        const char *top, *tenant, *file_says, *inside_says;  // NULL: accepted
    } rows[] = {
        {"\"log\":{}", OWN,
         "tenants.d/acme.json: /mcpServers/files/auth/mode: \"per_user\": needs a provider in /auth/providers that "
         "authenticates callers, in other.json",
         "other.json: /tenants/acme/mcpServers/files/auth/mode: \"per_user\": needs a provider in /auth/providers that "
         "authenticates callers"},
        {PROXY ",\"public_url\":\"http://gateway.example\"", OWN,
         "other.json: /public_url: users connect accounts there (server \"files\" in tenants.d/acme.json has",
         "other.json: /public_url: users connect accounts there (server \"files\" in other.json has"},
        {PROXY, TOLD,
         "tenants.d/acme.json: /mcpServers/files/auth/assertion: needs /public_url, as the issuer, in other.json",
         "other.json: /tenants/acme/mcpServers/files/auth/assertion: needs /public_url, as the issuer"},
        {"\"public_url\":\"https://gateway.example\"", TOLD,
         "tenants.d/acme.json: /mcpServers/files/auth/assertion: needs a provider in /auth/providers that "
         "authenticates "
         "callers, "
         "in other.json",
         "other.json: /tenants/acme/mcpServers/files/auth/assertion: needs a provider"},
        {PROXY ",\"public_url\":\"https://gateway.example\"", OWN, NULL, NULL},
        {PROXY ",\"public_url\":\"https://gateway.example\"", TOLD, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int inside = 0; inside < 2; inside++) {
            struct err err = {0};
            struct buf text = {0};
            const char *says = inside ? rows[i].inside_says : rows[i].file_says;
            buf_printf(&text, inside ? "{%s,\"tenants\":{\"acme\":%s}}" : "{%s}", rows[i].top, rows[i].tenant);
            unlink(TENANTS_D("acme.json"));
            if (!inside)
                write_file(TENANTS_D("acme.json"), rows[i].tenant);
            write_file("other.json", buf_text(&text));
            struct config *config = config_load("other.json", NULL, &err);
            assert_row((config == NULL) == (says != NULL), says ? says : err.detail);
            drop_position(err.detail);
            if (says)
                assert_contains(err.detail, says);
            config_unref(config);
            buf_release(&text);
        }
}

static void the_error_of_a_malformed_file_contains_no_text_of_it_except_a_key_that_occurs_twice(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"env\":{\"TOKEN\":\"hunter2",           "{\"env\":{\"TOKEN\":\"hunter2\n\"}}",
        "{\"env\":{\"TOKEN\":hunter2}}",           "{\"env\":{\"TOKEN\":\"hunter2\\q\"}}",
        "{\"env\":{\"TOKEN\" \"hunter2\"}}",       "{\"env\":{\"TOKEN\":1 \"hunter2\"}}",
        "{\"env\":{\"TOKEN\":\"a\",\"hunter2\"}}",
    };
    struct err err;
    for (size_t i = 0; i < COUNT(texts); i++) {
        write_file("other.json", texts[i]);
        assert_null(config_load("other.json", NULL, &err));
        assert_contains(err.detail, "other.json:1:");
        assert_null(strstr(err.detail, "hunter"));
    }
    write_file("other.json", "{\"prefix\":true,\"prefix\":true}");
    assert_null(config_load("other.json", NULL, &err));
    assert_contains(err.detail, "\"prefix\"");
}

static void a_tenants_d_that_is_not_a_folder_stops_the_start(void **state)
{
    (void)state;
    struct err err;
    write_file("other.json", "{}");
    write_file("tenants.d", "{}");
    struct config *config = config_load("other.json", NULL, &err);
    unlink("tenants.d");
    assert_null(config);
    assert_contains(err.detail, "tenants.d: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_file_in_tenants_d_defines_a_tenant, make_tenants_d, remove_tenants_d),
        cmocka_unit_test_setup_teardown(an_invalid_file_in_tenants_d_stops_the_start_and_is_named, make_tenants_d,
                                        remove_tenants_d),
        cmocka_unit_test_setup_teardown(H13_a_server_in_a_tenant_has_the_same_requirements_as_one_at_the_top,
                                        make_tenants_d, remove_tenants_d),
        cmocka_unit_test(a_tenants_d_that_is_not_a_folder_stops_the_start),
        cmocka_unit_test(the_error_of_a_malformed_file_contains_no_text_of_it_except_a_key_that_occurs_twice),
        cmocka_unit_test(an_empty_configuration_has_the_defaults),
        cmocka_unit_test(servers_are_read_with_their_type),
        cmocka_unit_test(the_control_socket_is_that_of_the_configuration_or_the_default),
        cmocka_unit_test(an_invalid_configuration_is_refused_with_path_and_advice),
        cmocka_unit_test(a_valid_configuration_is_accepted),
        cmocka_unit_test(loopback_addresses_are_distinguished_from_others),
        cmocka_unit_test(secrets_of_servers_are_not_shown),
        cmocka_unit_test(the_configuration_file_is_looked_for_in_order),
        cmocka_unit_test(a_configuration_file_is_loaded_or_named_in_the_error),
    };
    return cmocka_run_group_tests(tests, enter_dir, leave_dir);
}
