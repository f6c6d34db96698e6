// Tests reading HTTP/1.1 responses: framing, any split of the input, invalid responses, and when the connection may be kept.
#include "http1.h"
#include "unit.h"

// Reads a response in pieces: appends "200 body" to `heard`; returns the outcome.
static const char *hear(struct http1 *answer, struct span stream, size_t piece, bool closed, struct buf *heard)
{
    struct err err;
    for (size_t at = 0; at < stream.len; at += piece) {
        struct span bytes = span_make(stream.at + at, stream.len - at < piece ? stream.len - at : piece), part;
        for (;;) {
            enum http1_event event = http1_next(answer, &bytes, &part, &err);
            if (event == HTTP1_MORE)
                break;
            if (event == HTTP1_BROKEN)
                return "broken";
            if (event == HTTP1_END) {
                bool left = bytes.len || at + piece < stream.len;
                return left ? "more than whole" : answer->keep ? "whole, kept" : "whole, closed";
            }
            if (event == HTTP1_HEAD)
                buf_printf(heard, "%d ", answer->status);
            else
                buf_put_span(heard, part);
        }
    }
    return closed && http1_ends(answer) ? "whole at the close" : closed ? "cut off" : "waits";
}

#define OK "HTTP/1.1 200 OK\r\n"

static const struct answer_row {
    const char *name;
    const char *stream;
    size_t len;
    const char *heard, *outcome;
} answers[] = {
    {"sized", LIT(OK "Content-Length: 2\r\n\r\nab"), "200 ab", "whole, kept"},
    {"empty", LIT(OK "Content-Length: 0\r\n\r\n"), "200 ", "whole, kept"},
    {"no reason", LIT("HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n"), "202 ", "whole, kept"},
    {"empty reason", LIT("HTTP/1.1 202 \r\nContent-Length: 0\r\n\r\n"), "202 ", "whole, kept"},
    {"line feeds only", LIT("HTTP/1.1 200 OK\nContent-Length: 2\n\nab"), "200 ab", "whole, kept"},
    {"no body by its status", LIT("HTTP/1.1 204 No Content\r\n\r\n"), "204 ", "whole, kept"},
    {"not modified", LIT("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"), "304 ", "whole, kept"},
    {"blanks around a value", LIT(OK "Content-Length: \t 2 \t\r\n\r\nab"), "200 ab", "whole, kept"},
    {"equal lengths", LIT(OK "Content-Length: 2\r\ncontent-length: 2\r\n\r\nab"), "200 ab", "whole, kept"},
    {"close", LIT(OK "Connection: close\r\nContent-Length: 2\r\n\r\nab"), "200 ab", "whole, closed"},
    {"close in a list", LIT(OK "Connection: x, Close\r\nContent-Length: 2\r\n\r\nab"), "200 ab", "whole, closed"},
    {"kept for a time", LIT(OK "Keep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"), "200 ", "whole, kept"},
    {"kept for 0 seconds", LIT(OK "Keep-Alive: max=9, Timeout=0\r\nContent-Length: 0\r\n\r\n"), "200 ",
     "whole, closed"},
    {"kept for a time that is not a number", LIT(OK "Keep-Alive: timeout=-1, x\r\nContent-Length: 0\r\n\r\n"), "200 ",
     "whole, kept"},
    {"HTTP/1.0", LIT("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab"), "200 ab", "whole, closed"},
    {"until the close", LIT(OK "\r\nabc"), "200 abc", "whole at the close"},
    {"chunks", LIT(OK "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"), "200 abc", "whole, kept"},
    {"chunks, large hexadecimal", LIT(OK "Transfer-Encoding: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n"),
     "200 0123456789", "whole, kept"},
    {"chunk extension", LIT(OK "Transfer-Encoding: chunked\r\n\r\n2 ;x=y\r\nab\r\n0\r\n\r\n"), "200 ab", "whole, kept"},
    {"trailers", LIT(OK "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX: 1\r\n\r\n"), "200 ab", "whole, kept"},
    {"interim", LIT("HTTP/1.1 100 Continue\r\n\r\n" OK "Content-Length: 2\r\n\r\nab"), "200 ab", "whole, kept"},
    {"early hints with a length",
     LIT("HTTP/1.1 103 Early\r\nContent-Length: 7\r\n\r\n" OK "Content-Length: 2\r\n\r\nab"), "200 ab", "whole, kept"},
    {"bytes after the response", LIT(OK "Content-Length: 2\r\n\r\nabHTTP/1.1"), "200 ab", "more than whole"},
    {"cut in the head", LIT(OK "Content-Le"), "", "cut off"},
    {"cut in the body", LIT(OK "Content-Length: 3\r\n\r\nab"), "200 ab", "cut off"},
    {"cut in a chunk", LIT(OK "Transfer-Encoding: chunked\r\n\r\n3\r\nab"), "200 ab", "cut off"},
    {"cut before the last chunk", LIT(OK "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n"), "200 ab", "cut off"},
    {"nothing", LIT(""), "", "cut off"},
    {"no HTTP", LIT("SSH-2.0-OpenSSH\r\n"), "", "broken"},
    {"HTTP/2", LIT("HTTP/2.0 200 OK\r\n\r\n"), "", "broken"},
    {"status of two digits", LIT("HTTP/1.1 20 OK\r\n\r\n"), "", "broken"},
    {"status of four digits", LIT("HTTP/1.1 2000 OK\r\n\r\n"), "", "broken"},
    {"status below 100", LIT("HTTP/1.1 099 Odd\r\n\r\n"), "", "broken"},
    {"another protocol", LIT("HTTP/1.1 101 Switching\r\n\r\n"), "", "broken"},
    {"two lengths", LIT(OK "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc"), "", "broken"},
    {"a list of lengths", LIT(OK "Content-Length: 2, 2\r\n\r\nab"), "", "broken"},
    {"negative length", LIT(OK "Content-Length: -1\r\n\r\n"), "", "broken"},
    {"signed length", LIT(OK "Content-Length: +2\r\n\r\nab"), "", "broken"},
    {"length above the range", LIT(OK "Content-Length: 99999999999999999999\r\n\r\n"), "", "broken"},
    {"length and chunks", LIT(OK "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"), "", "broken"},
    {"chunks and length", LIT(OK "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n"), "", "broken"},
    {"chunked twice", LIT(OK "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), "", "broken"},
    {"compressed", LIT(OK "Transfer-Encoding: gzip, chunked\r\n\r\n"), "", "broken"},
    {"folded", LIT(OK "X: a\r\n b\r\n\r\n"), "", "broken"},
    {"blank before the colon", LIT(OK "Content-Length : 2\r\n\r\nab"), "", "broken"},
    {"no colon", LIT(OK "Content-Length\r\n\r\n"), "", "broken"},
    {"no name", LIT(OK ": x\r\n\r\n"), "", "broken"},
    {"a NUL", LIT(OK "X: a\0b\r\n\r\n"), "", "broken"},
    {"a bare carriage return", LIT(OK "X: a\rY: b\r\n\r\n"), "", "broken"},
    {"chunk without a size", LIT(OK "Transfer-Encoding: chunked\r\n\r\n\r\nab"), "200 ", "broken"},
    {"chunk size with a sign", LIT(OK "Transfer-Encoding: chunked\r\n\r\n-2\r\nab"), "200 ", "broken"},
    {"chunk size with a prefix", LIT(OK "Transfer-Encoding: chunked\r\n\r\n0x2\r\nab"), "200 ", "broken"},
    {"chunk size above the range", LIT(OK "Transfer-Encoding: chunked\r\n\r\n1000000000000000\r\n"), "200 ", "broken"},
    {"chunk longer than its size", LIT(OK "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n"), "200 ab", "broken"},
};

static void every_response_is_read_however_it_is_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const struct answer_row *row = &answers[i];
        for (size_t piece = 1; piece <= row->len + 1; piece++) {
            struct http1 answer = {0};
            struct buf heard = {0};
            const char *outcome = hear(&answer, span_make(row->stream, row->len), piece, true, &heard);
            if (strcmp(outcome, row->outcome) != 0 || strcmp(buf_text(&heard), row->heard) != 0)
                fail_msg("%s, in pieces of %zu: \"%s\", %s", row->name, piece, buf_text(&heard), outcome);
            buf_release(&heard);
            http1_release(&answer);
        }
    }
}

static void header_fields_are_found_in_any_spelling(void **state)
{
    (void)state;
    struct http1 answer = {0};
    struct buf heard = {0};
    static const char text[] = OK "Content-Type: application/json\r\nMCP-Session-Id:  one two \r\nX:\r\nX: 2\r\n"
                                  "Content-Length: 0\r\n\r\n";
    assert_string_equal(hear(&answer, span_make(text, sizeof text - 1), 3, false, &heard), "whole, kept");
    assert_string_equal(http1_field(&answer, "content-type", 0), "application/json");
    assert_string_equal(http1_field(&answer, "Mcp-Session-Id", 0), "one two");
    assert_string_equal(http1_field(&answer, "x", 0), "");
    assert_string_equal(http1_field(&answer, "X", 1), "2");
    assert_null(http1_field(&answer, "x", 2));
    assert_null(http1_field(&answer, "Content", 0));
    assert_null(http1_field(&answer, "json", 0));
    buf_release(&heard);
    http1_release(&answer);
}

// A head without an end, and trailers without an end, are refused before they fill the memory.
static void the_head_of_a_response_is_bounded(void **state)
{
    (void)state;
    static const char *const starts[] = {"HTTP/1.1 200 OK\r\n",
                                         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
                                         "HTTP/1.1 100 Continue\r\n\r\n"};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        struct http1 answer = {0};
        struct buf heard = {0}, stream = {0};
        buf_put_text(&stream, starts[i]);
        while (stream.len < 70000)
            buf_put_text(&stream, i == 2 ? starts[i] : "X-Filler: 0123456789\r\n");
        assert_string_equal(hear(&answer, buf_span(&stream), 1000, false, &heard), "broken");
        assert_true(answer.fields.len + answer.line.len <= 70000);
        buf_release(&stream);
        buf_release(&heard);
        http1_release(&answer);
    }
}

// The bound of a head does not count the lines of chunks.
static void a_response_may_have_any_number_of_chunks(void **state)
{
    (void)state;
    struct http1 answer = {0};
    struct buf heard = {0}, stream = {0};
    buf_put_text(&stream, OK "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 30000; i++)
        buf_put_text(&stream, "1\r\nx\r\n");
    buf_put_text(&stream, "0\r\n\r\n");
    assert_string_equal(hear(&answer, buf_span(&stream), 4096, false, &heard), "whole, kept");
    assert_int_equal(heard.len, 30000 + 4);
    buf_release(&stream);
    buf_release(&heard);
    http1_release(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_response_is_read_however_it_is_split),
        cmocka_unit_test(header_fields_are_found_in_any_spelling),
        cmocka_unit_test(the_head_of_a_response_is_bounded),
        cmocka_unit_test(a_response_may_have_any_number_of_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
