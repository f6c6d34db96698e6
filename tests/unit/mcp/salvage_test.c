// Tests salvaging a message that is not valid JSON: the id that it answers, and its list without the invalid items.
#include "mcp/salvage.h"
#include "unit.h"

#define V "\"jsonrpc\":\"2.0\""
#define HEAD "{\"result\":{\"tools\":["
#define TAIL "],\"nextCursor\":\"c\"}," V ",\"id\":7}"
#define ONE "{\"name\":\"a\"}"
#define DEEP4 "[[[["
#define DEEP64 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4 DEEP4

static void the_id_and_result_of_an_invalid_message_are_found_at_any_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum message_role role;
        const char *id, *result;  // NULL: not found
    } rows[] = {
        {"{" V ",\"id\":7,\"result\":{\"a\":\"\xFF\"}}", MESSAGE_ANSWERS, "7", "{\"a\":\"\xFF\"}"},
        {" \n{\"result\":{\"a\":\"\xFF}\",\"id\":8}," V ",\"id\":7}\n", MESSAGE_ANSWERS, "7",
         "{\"a\":\"\xFF}\",\"id\":8}"},
        {"{" V ",\"id\":7,\"result\":{\"a\":[1", MESSAGE_ANSWERS, "7", "{\"a\":[1"},
        {"{" V ",\"id\":7,\"result\":{\"a\":\"", MESSAGE_ANSWERS, "7", "{\"a\":\""},
        {"{\"result\":{\"a\":\"", MESSAGE_ANSWERS, NULL, "{\"a\":\""},
        {"{\"id\":\"7\",\"error\":{\"message\":\"\xFF\"}}", MESSAGE_ANSWERS, "\"7\"", NULL},
        {"{\"id\":\"\xFF\",\"error\":{}}", MESSAGE_ANSWERS, NULL, NULL},
        {"{\"id\":[7],\"error\":{}", MESSAGE_ANSWERS, NULL, NULL},
        {"{\"id\":7,\"id\":8,\"error\":{}", MESSAGE_ANSWERS, NULL, NULL},
        {"{\"id\":7,\"id\":8,\"id\":9,\"error\":{}", MESSAGE_ANSWERS, NULL, NULL},
        {"{\"error\":{},\"id\":7", MESSAGE_ANSWERS, NULL, NULL},  // the id may go on, as in 71
        {"{\"id\":7,\"method\":\"m\",\"params\":{\"a\":\"\xFF\"}}", MESSAGE_ASKS, "7", NULL},
        {"{\"params\":{\"result\":{\"a\":\"", MESSAGE_ASKS, NULL, NULL},
        {"{\"result\":{},\"method\":\"m\"", MESSAGE_ASKS, NULL, "{}"},
        {"[{\"id\":7}]", MESSAGE_UNCLEAR, NULL, NULL},
        {"{\"id\":7,\"level\":\"\xFF\"}", MESSAGE_UNCLEAR, "7", NULL},
        {"{\"id\"", MESSAGE_UNCLEAR, NULL, NULL},
        {"{", MESSAGE_UNCLEAR, NULL, NULL},
        {"{]}}{\"id\":7}", MESSAGE_UNCLEAR, NULL, NULL},
        {"{7:8,\"id\":7}", MESSAGE_UNCLEAR, NULL, NULL},
        {"\"\\", MESSAGE_UNCLEAR, NULL, NULL},
        {"", MESSAGE_UNCLEAR, NULL, NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct message found;
        salvage_find(span_of(rows[i].text), &found);
        assert_row(found.kind == MESSAGE_INVALID && found.role == rows[i].role, rows[i].text);
        assert_row(!found.id.at == !rows[i].id, rows[i].text);
        if (rows[i].id)
            assert_span(found.id, span_of(rows[i].id), rows[i].text);
        assert_row(!found.result.at == !rows[i].result, rows[i].text);
        if (rows[i].result)
            assert_span(found.result, span_of(rows[i].result), rows[i].text);
    }
}

static void invalid_items_of_a_list_become_null(void **state)
{
    (void)state;
    static const struct {
        const char *items, *left;  // NULL: the list cannot be salvaged
    } rows[] = {
        {ONE ",{\"name\":\"b\",\"description\":\"\xFF\"}," ONE, ONE ",null," ONE},
        {"{\"name\":\"\xC3\x28\"} , " ONE, "null , " ONE},
        {"{\"name\":tru}," ONE, "null," ONE},
        {"{\"name\":\"\\x\"}," ONE ",{\"a\":1,}", "null," ONE ",null"},
        {"{\"name\":\"a\nb\"}", "null"},
        {ONE "," DEEP64 DEEP64 "1", NULL},     // brackets are not closed
        {ONE ",{\"name\":\"b},{\"c\"", NULL},  // a string is not closed
        {ONE, NULL},                           // no item is invalid
        {"", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf text = {0}, out = {0}, want = {0};
        struct message found, message;
        struct err err;
        buf_printf(&text, "%s%s%s", HEAD, rows[i].items, TAIL);
        buf_printf(&want, "%s%s%s", HEAD, rows[i].left ? rows[i].left : "", TAIL);
        salvage_find(buf_span(&text), &found);
        bool saved = salvage_list(buf_span(&text), found.result, "tools", &out) &&
                     message_parse(buf_span(&out), false, &message, &err);
        assert_row(saved == (rows[i].left != NULL), rows[i].items);
        if (saved)
            assert_span(buf_span(&out), buf_span(&want), rows[i].items);
        assert_false(salvage_list(buf_span(&text), found.result, "prompts", &out));
        buf_release(&text);
        buf_release(&out);
        buf_release(&want);
    }
}

static void a_list_with_too_many_invalid_items_is_not_salvaged(void **state)
{
    (void)state;
    for (size_t count = 10000; count <= 10001; count++) {
        struct buf text = {0}, out = {0};
        struct message found;
        buf_put_text(&text, HEAD);
        for (size_t i = 0; i < count; i++)
            buf_put_text(&text, "x,");
        buf_put_text(&text, "1" TAIL);
        salvage_find(buf_span(&text), &found);
        assert_int_equal(salvage_list(buf_span(&text), found.result, "tools", &out), count == 10000);
        buf_release(&text);
        buf_release(&out);
    }
}

// The item alone is valid, but nested too deeply inside the message.
static void an_item_that_is_too_deep_becomes_null(void **state)
{
    (void)state;
    for (int depth = 120; depth <= 200; depth++) {
        struct buf text = {0}, out = {0};
        struct message found, message;
        struct err err;
        buf_put_text(&text, HEAD ONE ",");
        for (int i = 0; i < depth; i++)
            buf_put_char(&text, '[');
        buf_put_char(&text, '1');
        for (int i = 0; i < depth; i++)
            buf_put_char(&text, ']');
        buf_put_text(&text, TAIL);
        if (!message_parse(buf_span(&text), false, &message, &err)) {
            salvage_find(buf_span(&text), &found);
            assert_true(salvage_list(buf_span(&text), found.result, "tools", &out));
            assert_true(message_parse(buf_span(&out), false, &message, &err));
            assert_contains(buf_text(&out), HEAD ONE ",null]");
        }
        buf_release(&text);
        buf_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_id_and_result_of_an_invalid_message_are_found_at_any_place),
        cmocka_unit_test(invalid_items_of_a_list_become_null),
        cmocka_unit_test(a_list_with_too_many_invalid_items_is_not_salvaged),
        cmocka_unit_test(an_item_that_is_too_deep_becomes_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
