// Tests reading and writing JSON-RPC messages: their kinds, exact ids, and invalid messages with their error codes.
#include "base/scan.h"
#include "mcp/message.h"
#include "unit.h"

#define V "\"jsonrpc\":\"2.0\""

#define ERROR "{\"message\":\"\",\"code\":-1,\"data\":null}"

static const struct message_row {
    const char *text;
    enum message_kind kind;
    const char *id, *method, *params, *result, *error;
} messages[] = {
    {"{" V ",\"id\":1,\"method\":\"ping\"}", MESSAGE_REQUEST, "1", "ping", NULL, NULL, NULL},
    {"{\"method\":\"ping\",\"id\":\"1\"," V "}", MESSAGE_REQUEST, "\"1\"", "ping", NULL, NULL, NULL},
    {" { " V " , \"id\" : -7 , \"method\" : \"m\" , \"params\" : { \"a\" : 1 } } \n", MESSAGE_REQUEST, "-7", "m",
     "{ \"a\" : 1 }", NULL, NULL},
    {"{" V ",\"id\":12345678901234567890123,\"method\":\"m\"}", MESSAGE_REQUEST, "12345678901234567890123", "m", NULL,
     NULL, NULL},
    {"{" V ",\"id\":\"\",\"method\":\"m\"}", MESSAGE_REQUEST, "\"\"", "m", NULL, NULL, NULL},
    {"{" V ",\"id\":\"a\\u0041\\n\",\"method\":\"m\"}", MESSAGE_REQUEST, "\"a\\u0041\\n\"", "m", NULL, NULL, NULL},
    {"{" V ",\"id\":0,\"method\":\"tools\\/call\",\"params\":{}}", MESSAGE_REQUEST, "0", "tools/call", "{}", NULL,
     NULL},
    {"{" V ",\"id\":0,\"method\":\"t\\u006fols/call\"}", MESSAGE_REQUEST, "0", "tools/call", NULL, NULL, NULL},
    {"{" V ",\"\\u0069d\":3,\"m\\u0065thod\":\"m\"}", MESSAGE_REQUEST, "3", "m", NULL, NULL, NULL},
    {"{" V ",\"id\":1,\"method\":\"m\",\"extra\":[{\"id\":2}]}", MESSAGE_REQUEST, "1", "m", NULL, NULL, NULL},
    {"{" V ",\"method\":\"notifications/initialized\"}", MESSAGE_NOTIFICATION, NULL, "notifications/initialized", NULL,
     NULL, NULL},
    {"{" V ",\"method\":\"\"}", MESSAGE_NOTIFICATION, NULL, "", NULL, NULL, NULL},
    {"{" V ",\"id\":1,\"result\":{}}", MESSAGE_RESULT, "1", NULL, NULL, "{}", NULL},
    {"{" V ",\"id\":\"x\",\"result\":{\"a\":[1.50]}}", MESSAGE_RESULT, "\"x\"", NULL, NULL, "{\"a\":[1.50]}", NULL},
    {"{" V ",\"id\":1,\"error\":" ERROR "}", MESSAGE_ERROR, "1", NULL, NULL, NULL, ERROR},
    {"{" V ",\"id\":null,\"error\":" ERROR "}", MESSAGE_ERROR, NULL, NULL, NULL, NULL, ERROR},
    {"{" V ",\"error\":" ERROR "}", MESSAGE_ERROR, NULL, NULL, NULL, NULL, ERROR},
};

static void assert_part(struct span got, const char *want, const char *label)
{
    if (!want)
        assert_row(got.at == NULL, label);
    else
        assert_span(got, span_of(want), label);
}

static void every_kind_of_message_is_recognized(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(messages); i++)
        for (int strict = 0; strict < 2; strict++) {
            const struct message_row *row = &messages[i];
            struct message message;
            struct err err = {0};
            assert_row(message_parse(span_of(row->text), strict, &message, &err), row->text);
            assert_row(message.kind == row->kind, row->text);
            assert_part(message.id, row->id, row->text);
            assert_part(message.method, row->method, row->text);
            assert_part(message.params, row->params, row->text);
            assert_part(message.result, row->result, row->text);
            assert_part(message.error, row->error, row->text);
            assert_span(message.text, span_of(row->text), "text");
        }
}

// Messages that both modes refuse, with the error code, and the id if it can be read.
static const struct refused_row {
    const char *text;
    enum err_code code;
    const char *id;
} refused[] = {
    {"", ERR_PARSE, NULL},
    {"hello", ERR_PARSE, NULL},
    {"{", ERR_PARSE, NULL},
    {"{" V ",\"id\":1,\"method\":\"m\"", ERR_PARSE, NULL},
    {"{" V ",\"id\":1,\"method\":\"m\"} x", ERR_PARSE, NULL},
    {"{" V ",\"id\":1,\"method\":\"m\",}", ERR_PARSE, NULL},
    {"{" V " \"id\":1}", ERR_PARSE, NULL},
    {"{" V ",\"id\":1,\"method\":\"\\x\"}", ERR_PARSE, NULL},
    {"{" V ",\"id\":1,\"method\":\"m\",\"params\":{\"a\":tru}}", ERR_PARSE, NULL},
    {"{" V ",\"id\":1,\"id\":2,\"method\":\"m\"}", ERR_PARSE, NULL},
    {"{" V ",\"id\":1,\"method\":\"a\",\"meth\\u006fd\":\"b\"}", ERR_PARSE, NULL},
    {"[]", ERR_INVALID_REQUEST, NULL},
    {"1", ERR_INVALID_REQUEST, NULL},
    {"null", ERR_INVALID_REQUEST, NULL},
    {"\"text\"", ERR_INVALID_REQUEST, NULL},
    {"{}", ERR_INVALID_REQUEST, NULL},
    {"{\"id\":1,\"method\":\"m\"}", ERR_INVALID_REQUEST, "1"},
    {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", ERR_INVALID_REQUEST, "1"},
    {"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"m\"}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":null,\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":1.5,\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":1.0,\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":1e2,\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":1E2,\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":true,\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":{},\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":[1],\"method\":\"m\"}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":1,\"method\":7}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"method\":null}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"method\":\"m\",\"params\":[]}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"method\":\"m\",\"params\":null}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"method\":\"m\",\"params\":\"x\"}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"method\":\"m\",\"result\":{}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"method\":\"m\",\"error\":{}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"result\":{},\"error\":{}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"result\":{}}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":null,\"result\":{}}", ERR_INVALID_REQUEST, NULL},
    {"{" V ",\"id\":1,\"error\":\"x\"}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"error\":null}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"error\":{}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"error\":{\"code\":1}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"error\":{\"message\":\"m\"}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"error\":{\"code\":1.0,\"message\":\"m\"}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"error\":{\"code\":\"1\",\"message\":\"m\"}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"error\":{\"code\":1,\"message\":null}}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"result\":null}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"result\":5}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"result\":\"x\"}", ERR_INVALID_REQUEST, "1"},
    {"{" V ",\"id\":1,\"result\":[]}", ERR_INVALID_REQUEST, "1"},
};

static void a_text_that_is_not_a_message_is_refused_with_its_error_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refused); i++)
        for (int strict = 0; strict < 2; strict++) {
            const struct refused_row *row = &refused[i];
            struct message message;
            struct err err = {0};
            assert_row(!message_parse(span_of(row->text), strict, &message, &err), row->text);
            assert_row(err.code == row->code, row->text);
            assert_row(message.kind == MESSAGE_INVALID, row->text);
            assert_part(message.id, row->id, row->text);
        }
}

static void duplicates_below_the_message_count_only_when_strict(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{" V ",\"id\":1,\"method\":\"m\",\"params\":{\"a\":1,\"a\":2}}",
        "{" V ",\"id\":1,\"method\":\"m\",\"params\":{\"x\":[{\"a\":1,\"\\u0061\":2}]}}",
        "{" V ",\"id\":1,\"method\":\"m\",\"x\":1,\"x\":2}",
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct message message;
        struct err err = {0};
        assert_row(!message_parse(span_of(texts[i]), true, &message, &err), texts[i]);
        assert_int_equal(err.code, ERR_PARSE);
        assert_row(message_parse(span_of(texts[i]), false, &message, &err), texts[i]);
    }
}

static void a_long_escaped_method_name_is_a_method(void **state)
{
    (void)state;
    struct buf text = {0};
    buf_put_text(&text, "{" V ",\"id\":1,\"method\":\"x\\/");
    for (int i = 0; i < 200; i++)
        buf_put_char(&text, 'm');
    buf_put_text(&text, "\"}");
    struct message message;
    struct err err;
    assert_true(message_parse(buf_span(&text), true, &message, &err));
    assert_int_equal(message.kind, MESSAGE_REQUEST);
    assert_true(message.method.len >= 202);
    buf_release(&text);
}

static void ids_and_methods_are_bounded(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++)
        for (int more = 0; more < 2; more++) {
            struct buf text = {0};
            struct message message;
            struct err err = {0};
            buf_printf(&text, "{" V ",\"id\":\"%0*d\",\"method\":\"m\"}", MESSAGE_ID_MAX - 2 + more, 0);
            assert_int_equal(message_parse(buf_span(&text), strict, &message, &err), !more);
            assert_int_equal(err.code, more ? ERR_INVALID_REQUEST : ERR_NONE);
            buf_clear(&text);
            buf_printf(&text, "{" V ",\"id\":1,\"method\":\"%0*d\"}", MESSAGE_METHOD_MAX - 2 + more, 0);
            assert_int_equal(message_parse(buf_span(&text), strict, &message, &err), !more);
            buf_release(&text);
        }
}

static void written_messages_are_read_back_by_the_parser(void **state)
{
    (void)state;
    struct span none = {0};
    struct message message;
    struct err err;
    struct buf out = {0};

    message_put_request(&out, SPAN("7"), "tools/call", SPAN("{\"a\":1}"));
    assert_span(buf_span(&out), SPAN("{" V ",\"id\":7,\"method\":\"tools/call\",\"params\":{\"a\":1}}"), "request");
    buf_clear(&out);
    message_put_request(&out, SPAN("\"x\""), "ping", none);
    assert_span(buf_span(&out), SPAN("{" V ",\"id\":\"x\",\"method\":\"ping\"}"), "no params");
    buf_clear(&out);
    message_put_notification(&out, "n", SPAN("{}"));
    assert_span(buf_span(&out), SPAN("{" V ",\"method\":\"n\",\"params\":{}}"), "notification");
    buf_clear(&out);
    message_put_result(&out, SPAN("1"), SPAN("{\"r\":1.0}"));
    assert_span(buf_span(&out), SPAN("{" V ",\"id\":1,\"result\":{\"r\":1.0}}"), "result");
    buf_clear(&out);
    message_put_raw_error(&out, none, SPAN("{\"code\":1,\"message\":\"\"}"));
    assert_span(buf_span(&out), SPAN("{" V ",\"id\":null,\"error\":{\"code\":1,\"message\":\"\"}}"), "raw error");

    for (int code = 0; code < ERR_CODES; code++) {
        struct span value;
        buf_clear(&out);
        message_put_error(&out, SPAN("5"), (enum err_code)code, SPAN("\"uri\":\"x\""));
        assert_true(message_parse(buf_span(&out), true, &message, &err));
        assert_int_equal(message.kind, MESSAGE_ERROR);
        assert_true(scan_find(message.error, "data", &value));
        assert_true(scan_find(value, "reason", &value));
        assert_span(span_make(value.at + 1, value.len - 2), span_of(err_reason((enum err_code)code)), "reason");
    }
    buf_release(&out);
}

static void a_flattened_message_is_one_line_of_the_same_length(void **state)
{
    (void)state;
    char text[] = "{\r\n\"a\":\n\n\"\\n\"}\r";
    message_flatten(text, sizeof text - 1);
    assert_string_equal(text, "{  \"a\":  \"\\n\"} ");
}

static void the_length_of_an_id_is_bounded(void **state)
{
    (void)state;
    for (int more = 0; more < 2; more++) {
        struct message message;
        struct err err = {0};
        struct buf text = {0};
        buf_printf(&text, "{" V ",\"method\":\"m\",\"id\":\"%0*d\"}", MESSAGE_ID_MAX - 2 + more, 0);
        assert_int_equal(message_parse(buf_span(&text), false, &message, &err), !more);
        assert_int_equal(err.code, more ? ERR_INVALID_REQUEST : ERR_NONE);
        assert_int_equal(message.id.len, more ? 0 : MESSAGE_ID_MAX);
        buf_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_message_is_recognized),
        cmocka_unit_test(a_text_that_is_not_a_message_is_refused_with_its_error_code),
        cmocka_unit_test(duplicates_below_the_message_count_only_when_strict),
        cmocka_unit_test(a_long_escaped_method_name_is_a_method),
        cmocka_unit_test(ids_and_methods_are_bounded),
        cmocka_unit_test(written_messages_are_read_back_by_the_parser),
        cmocka_unit_test(the_length_of_an_id_is_bounded),
        cmocka_unit_test(a_flattened_message_is_one_line_of_the_same_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
