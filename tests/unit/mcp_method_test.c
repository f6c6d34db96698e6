// Tests the members of parameters: what a server may take for a member that the method has is refused, and only that.
#include "base/scan.h"
#include "mcp/method.h"
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
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"_meta\":{\"progressToken\":1,\"ProgressToken\":2}}"},
    {METHOD_TOOLS_CALL, false, "{\"name\":\"x\",\"_meta\":{\"io.modelcontextprotocol/Related-Task\":{}}}"},
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

static void test_members(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct err err = {0};
        struct span params;
        assert_row(scan_document(span_of(rows[i].params), true, &params, &err), rows[i].params);
        assert_row(method_check_params(rows[i].method, params, &err) == rows[i].ok, rows[i].params);
        assert_row(rows[i].ok || err.code == ERR_INVALID_PARAMS, rows[i].params);
    }
}

static void test_no_params(void **state)
{
    (void)state;
    struct err err = {0};
    for (int method = 0; method < METHODS; method++)
        assert_true(method_check_params((enum method)method, (struct span){0}, &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_members), cmocka_unit_test(test_no_params)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
