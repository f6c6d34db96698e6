// Tests the members of parameters: members of the method are found, and a member that a server could confuse with one of them is
// refused, but no others.
#include "base/scan.h"
#include "mcp/params.h"
#include "unit.h"

static const struct row {
    enum method method;
    bool ok;
    const char *params;
} rows[] = {
    {METHOD_TOOLS_CALL, true, "{}"},
    {METHOD_TOOLS_CALL, true,
     "{\"name\":\"x\",\"arguments\":{\"Name\":1,\"name\":2},\"task\":{\"Ttl\":1},\"_meta\":{}}"},
    {METHOD_TOOLS_CALL, true,
     "{\"name\":\"x\",\"URI\":1,\"uri\":2,\"taskID\":3,\"Cursor\":4,\"\":5,\"other\":6,\"Other\":7}"},
    {METHOD_TOOLS_CALL, true, "{\"\\u006eame\":\"x\",\"argument\":1,\"argumentss\":2,\"meta\":3}"},
    {METHOD_TOOLS_CALL, true, "{\"name\":\"Name\",\"arguments\":{\"a\\u0000\":1,\"Arguments\":{}}}"},
    {METHOD_TOOLS_CALL, true, "{\"name\":\"x\",\"nam\\u00e9\":1,\"nom\\u212a\":2,\"\\u0131d\":3}"},
    {METHOD_TOOLS_CALL, false, "{\"Name\":\"x\"}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"NAME\":\"y\"}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"\\u004eame\":\"y\"}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"Arguments\":{}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"arguments\":{},\"argument\xC5\xBF\":{}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"argument\\u017f\":{}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"ta\\u017F\\u212a\":{}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"_Meta\":{}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"name\\u0000\":1}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"\\u0000\":1}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"other\\u0000thing\":1}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"na\\ud83dme\":1}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"\\udE00NA\\ud83dme\":1}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"name\\ud83dother\":1}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"other\\ud83d\\u0000\":1}"},
    {METHOD_TOOLS_CALL, true, "{\"name\":\"x\",\"\\udE00\":1,\"vendor\\ud83d\":2,\"name\\ud83d\\ude00\":3}"},
    {METHOD_TOOLS_CALL, true, "{\"name\":\"x\",\"_meta\":{\"vendor\\ud83d\":{\"\\ud83d\":1},\"\\ude00\":2}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"_meta\":{\"progressToken\\ud83d\":2}}"},
    {METHOD_TOOLS_CALL, true, "{\"name\":\"x\",\"\\ud83d\\ude00\":1,\"other\":{\"\\ud83d\":\"\\ude00\"}}"},
    {METHOD_TOOLS_CALL, true,
     "{\"name\":\"x\",\"arguments\":{\"\\ud83d\":1},\"_meta\":{\"a\":{\"\\ud83d\":\"\\ud83d\"}}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"_meta\":{\"progressToken\":1,\"ProgressToken\":2}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"_meta\":{\"io.modelcontextprotocol/Related-Task\":{}}}"},
    {METHOD_TOOLS_CALL, false,
     "{\"_meta\":{\"io.modelcontextprotocol/related-task\":{\"taskId\":\"a\",\"TaskID\":\"b\"}}}"},
    {METHOD_CANCELLED, false, "{\"_meta\":{\"io.modelcontextprotocol/related-task\":{\"taskid\":\"b\"}}}"},
    {METHOD_TOOLS_CALL, true,
     "{\"_meta\":{\"io.modelcontextprotocol/related-task\":{\"taskId\":\"a\",\"Ttl\":1,\"_Meta\":{}},\"taskid\":1}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"_meta\":{\"progressToken\\u0000\":2}}"},
    {METHOD_TOOLS_CALL, true, "{\"name\":\"x\",\"_meta\":{\"progressToken\":1,\"Vendor\":2,\"vendor\":3}}"},
    {METHOD_TOOLS_CALL, true, "{\"name\":\"x\",\"ref\":{\"Name\":1},\"context\":{\"Arguments\":2}}"},
    {METHOD_PROMPTS_GET, false, "{\"name\":\"x\",\"NAME\":\"y\"}"},
    {METHOD_PROMPTS_GET, false, "{\"name\":\"x\",\"ARGUMENTS\":{}}"},
    {METHOD_RESOURCES_READ, false, "{\"uri\":\"a:b\",\"URI\":\"a:c\"}"},
    {METHOD_RESOURCES_READ, true, "{\"uri\":\"a:b\",\"Name\":\"c\",\"arguments\":{},\"Arguments\":{}}"},
    {METHOD_RESOURCES_SUBSCRIBE, false, "{\"Uri\":\"a:b\",\"uri\":\"a:c\"}"},
    {METHOD_RESOURCES_UNSUBSCRIBE, false, "{\"uRi\":\"a:b\"}"},
    {METHOD_TASKS_GET, false, "{\"taskId\":\"a\",\"taskID\":\"b\"}"},
    {METHOD_TASKS_RESULT, false, "{\"taskId\":\"a\",\"tas\\u212aId\":\"b\"}"},
    {METHOD_TASKS_CANCEL, false, "{\"taskId\":\"a\",\"TaskId\":\"b\"}"},
    {METHOD_TASKS_LIST, false, "{\"Cursor\":\"a\"}"},
    {METHOD_TOOLS_LIST, false, "{\"CURSOR\":\"a\"}"},
    {METHOD_PROMPTS_LIST, false, "{\"CURSOR\":\"a\"}"},
    {METHOD_RESOURCES_LIST, false, "{\"CURSOR\":\"a\"}"},
    {METHOD_RESOURCES_TEMPLATES, false, "{\"CURSOR\":\"a\"}"},
    {METHOD_SET_LEVEL, false, "{\"level\":\"info\",\"Level\":\"debug\"}"},
    {METHOD_INITIALIZE, false, "{\"protocolVersion\":\"1\",\"protocolversion\":\"2\"}"},
    {METHOD_INITIALIZE, false, "{\"clientinfo\":{}}"},
    {METHOD_INITIALIZE, true,
     "{\"protocolVersion\":\"1\",\"capabilities\":{\"Roots\":{}},\"clientInfo\":{\"Name\":1}}"},
    {METHOD_PING, false, "{\"_META\":{}}"},
    {METHOD_INITIALIZED, false, "{\"_META\":{}}"},
    {METHOD_ROOTS_CHANGED, false, "{\"_META\":{}}"},
    {METHOD_CANCELLED, false, "{\"requestId\":1,\"RequestId\":2}"},
    {METHOD_PROGRESS, false, "{\"progressToken\":1,\"progresstoken\":2}"},
    {METHOD_PROGRESS, false, "{\"progressToken\":1,\"progress\":1,\"Progress\":2}"},
    {METHOD_COMPLETE, true,
     "{\"ref\":{\"type\":\"ref/prompt\",\"name\":\"p\"},\"argument\":{\"name\":\"a\",\"value\":\"\"},"
     "\"context\":{\"arguments\":{\"b\":\"1\",\"B\":\"2\"}}}"},
    {METHOD_COMPLETE, false, "{\"Ref\":{}}"},
    {METHOD_COMPLETE, false, "{\"ref\":{\"name\":\"p\",\"Name\":\"q\"}}"},
    {METHOD_COMPLETE, false, "{\"ref\":{\"uri\":\"p\",\"URI\":\"q\"}}"},
    {METHOD_COMPLETE, false, "{\"ref\":{\"type\":\"p\",\"TYPE\":\"q\"}}"},
    {METHOD_COMPLETE, false, "{\"ref\":{\"type\\u0000\":\"p\"}}"},
    {METHOD_COMPLETE, false, "{\"argument\":{\"name\":\"p\",\"value\":\"q\",\"Value\":\"r\"}}"},
    {METHOD_COMPLETE, false, "{\"argument\":{\"Name\":\"p\",\"value\":\"q\"}}"},
    {METHOD_COMPLETE, false, "{\"context\":{\"arguments\":{},\"Arguments\":{}}}"},
    {METHOD_COMPLETE, false, "{\"conte\\u0058t\":{}}"},
    {METHOD_COMPLETE, true, "{\"ref\":[{\"Name\":1}],\"argument\":null,\"context\":\"Arguments\"}"},
};

static void members_of_params_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        struct span text;
        struct params params;
        assert_row(scan_document(span_of(rows[i].params), true, &text, &err), rows[i].params);
        params_read(rows[i].method, text, &params);
        assert_row(!params.ambiguous.at == rows[i].ok, rows[i].params);
    }
}

static void a_message_without_params_has_no_members(void **state)
{
    (void)state;
    for (int method = 0; method < METHODS; method++) {
        struct params params;
        params_read((enum method)method, (struct span){0}, &params);
        assert_true(!params.ambiguous.at && params.count == 0);
    }
}

static void assert_found(const struct params *params, const char *in, const char *name, const char *raw)
{
    struct span value;
    assert_true(params_find(params, in, name, &value));
    assert_true(span_is(value, raw));
}

static void a_member_is_found_by_name(void **state)
{
    (void)state;
    struct span value;
    struct params params;
    params_read(METHOD_COMPLETE,
                span_of("{\"argument\":{\"value\":\"v\",\"name\":\"a\"},\"context\":{\"arguments\":{\"name\":1}},"
                        "\"_meta\":{\"progressToken\":7,\"io.modelcontextprotocol/related-task\":{\"taskId\":\"t\"}},"
                        "\"ref\":{\"type\":\"t\",\"na\\u006de\":\"n\",\"uri\":\"u\"},\"other\":{\"name\":2}}"),
                &params);
    assert_int_equal(params.count, PARAMS_KNOWN_MAX);
    assert_found(&params, NULL, "context", "{\"arguments\":{\"name\":1}}");
    assert_found(&params, "context", "arguments", "{\"name\":1}");
    assert_found(&params, "ref", "name", "\"n\"");
    assert_found(&params, "argument", "name", "\"a\"");
    assert_found(&params, "_meta", "progressToken", "7");
    assert_found(&params, PARAMS_RELATED, "taskId", "\"t\"");
    assert_false(params_find(&params, NULL, "name", &value));
    assert_false(params_find(&params, NULL, "other", &value));
    assert_false(params_find(&params, "other", "name", &value));
    params_read(METHOD_TOOLS_CALL, span_of("{\"Name\":1,\"arguments\":[2]}"), &params);
    assert_found(&params, NULL, "arguments", "[2]");  // the other members are found as well
    assert_true(span_is(params.ambiguous, "\"Name\""));
}

static void lengths_of_params_are_bounded(void **state)
{
    (void)state;
    static const struct {
        enum method method;
        const char *before, *after, *what;
        size_t max;  // the longest value
    } lengths[] = {
        {METHOD_TOOLS_CALL, "{\"name\":", "}", "name", PARAMS_NAME_MAX},
        {METHOD_PROMPTS_GET, "{\"name\":", "}", "name", PARAMS_NAME_MAX},
        {METHOD_RESOURCES_READ, "{\"uri\":", "}", "uri", PARAMS_URI_MAX},
        {METHOD_TOOLS_LIST, "{\"cursor\":", "}", "cursor", PARAMS_URI_MAX},
        {METHOD_TASKS_GET, "{\"taskId\":", "}", "taskId", PARAMS_URI_MAX},
        {METHOD_CANCELLED, "{\"requestId\":", "}", "requestId", PARAMS_TOKEN_MAX},
        {METHOD_PROGRESS, "{\"progressToken\":", "}", "progressToken", PARAMS_TOKEN_MAX},
        {METHOD_TOOLS_CALL, "{\"_meta\":{\"progressToken\":", "}}", "progressToken", PARAMS_TOKEN_MAX},
        {METHOD_COMPLETE, "{\"ref\":{\"name\":", "}}", "name", PARAMS_NAME_MAX},
        {METHOD_COMPLETE, "{\"ref\":{\"uri\":", "}}", "uri", PARAMS_URI_MAX},
        {METHOD_COMPLETE, "{\"argument\":{\"name\":", "}}", "name", PARAMS_NAME_MAX},
        {METHOD_COMPLETE, "{\"argument\":{\"value\":", "}}", "", PARAMS_REST_MAX - 23},
        {METHOD_TOOLS_CALL, "{\"arguments\":{\"name\":\"x\"},\"x\":", "}", "", PARAMS_REST_MAX - 19},
        {METHOD_PING, "{\"_meta\":", "}", "", PARAMS_REST_MAX - 10},
    };
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (size_t more = 0; more < 2; more++) {
            struct buf text = {0};
            struct params params;
            buf_printf(&text, "%s\"%0*d\"%s", lengths[i].before, (int)(lengths[i].max - 2 + more), 0, lengths[i].after);
            params_read(lengths[i].method, buf_span(&text), &params);
            assert_row(!params.too_long == !more, lengths[i].before);
            assert_row(!more || strcmp(params.too_long, lengths[i].what) == 0, lengths[i].before);
            buf_release(&text);
        }
    struct buf large = {0};
    struct params params;
    buf_printf(&large, "{\"name\":\"x\",\"arguments\":{\"name\":\"%0*d\"}}", 1 << 20, 0);
    params_read(METHOD_TOOLS_CALL, buf_span(&large), &params);
    assert_null(params.too_long);
    params_read(METHOD_UNKNOWN, buf_span(&large), &params);
    assert_null(params.too_long);
    buf_release(&large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_params_are_found), cmocka_unit_test(a_message_without_params_has_no_members),
        cmocka_unit_test(a_member_is_found_by_name), cmocka_unit_test(lengths_of_params_are_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
