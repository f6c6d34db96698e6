// Tests the SSE parser (line ends, BOM, fields, any split, bounds), and the writer with the parser.
#include "mcp/sse.h"
#include "unit.h"

#define MAX 256

// Appends "type|id|data;" for each event; false if an event was too large.
static bool push(struct sse_parser *parser, struct span bytes, struct buf *heard)
{
    struct sse_event event;
    enum sse_status status;
    bool all = true;
    while ((status = sse_next(parser, &bytes, &event)) != SSE_MORE) {
        if (status == SSE_TOO_LARGE) {
            assert_true(event.data.len >= MAX && event.data.at[0] == 'x');  // the beginning of the data
            all = false;
            continue;
        }
        buf_put_span(heard, event.type);
        buf_put_char(heard, '|');
        buf_put_span(heard, event.id);
        buf_put_char(heard, '|');
        buf_put_span(heard, event.data);
        buf_put_char(heard, ';');
    }
    return all;
}

static const struct stream_row {
    const char *stream;
    size_t len;
    const char *events;
    int64_t retry;
} streams[] = {
    {LIT(""), "", -1},
    {LIT("data: a\n\n"), "message||a;", -1},
    {LIT("data: a\r\n\r\n"), "message||a;", -1},
    {LIT("data: a\r\r"), "message||a;", -1},
    {LIT("data: a\r\n\n"), "message||a;", -1},
    {LIT("data: a\n\r\n"), "message||a;", -1},
    {LIT("data: a\n\rdata: b\r\r\n"), "message||a;message||b;", -1},
    {LIT("data:a\n\n"), "message||a;", -1},
    {LIT("data:  a\n\n"), "message|| a;", -1},
    {LIT("data: a: b\n\n"), "message||a: b;", -1},
    {LIT("data: a\ndata: b\ndata:c\n\n"), "message||a\nb\nc;", -1},
    {LIT("data\n\n"), "message||;", -1},
    {LIT("data:\n\n"), "message||;", -1},
    {LIT("data\ndata\n\n"), "message||\n;", -1},
    {LIT("data: a\n"), "", -1},
    {LIT("data: a"), "", -1},
    {LIT("data: a\n\ndata: b\n"), "message||a;", -1},
    {LIT("\n\n\n"), "", -1},
    {LIT(": comment\n\n"), "", -1},
    {LIT(":\n\ndata: a\n: in between\ndata: b\n\n"), "message||a\nb;", -1},
    {LIT("event: x\ndata: a\n\ndata: b\n\n"), "x||a;message||b;", -1},
    {LIT("event: x\n\ndata: b\n\n"), "message||b;", -1},
    {LIT("event: x\nevent: y\ndata: a\n\n"), "y||a;", -1},
    {LIT("event:\ndata: a\n\n"), "message||a;", -1},
    {LIT("id: 1\ndata: a\n\ndata: b\n\n"), "message|1|a;message|1|b;", -1},
    {LIT("id: 1\n\ndata: b\n\n"), "message|1|b;", -1},
    {LIT("id: 1\ndata: a\n\nid\ndata: b\n\n"), "message|1|a;message||b;", -1},
    {LIT("id: 1\nid: 2\0x\ndata: a\n\n"), "message|1|a;", -1},
    {LIT("id: 7\ndata:\n\n"), "message|7|;", -1},
    {LIT("retry: 1500\n\n"), "", 1500},
    {LIT("retry: 1500\nretry: x\nretry: -1\nretry:\n"), "", 1500},
    {LIT("retry: 99999999999999999999\n"), "", -1},
    {LIT("unknown: x\nDATA: x\n data: x\ndata : x\ndata: a\n\n"), "message||a;", -1},
    {LIT("\xEF\xBB\xBF"
         "data: a\n\n"),
     "message||a;", -1},
    {LIT("\xEF\xBB\xBF\ndata: a\n\n"), "message||a;", -1},
    {LIT("\xEF\xBB\xBF\xEF\xBB\xBF"
         "data: x\ndata: a\n\n"),
     "message||a;", -1},
    {LIT("data: a\n\n\xEF\xBB\xBF"
         "data: b\n\n"),
     "message||a;", -1},
    {LIT("data: \xC3\xA9\xF0\x9F\x98\x80\n\n"), "message||\xC3\xA9\xF0\x9F\x98\x80;", -1},
};

static void assert_heard(struct buf *heard, const char *events, const char *label)
{
    assert_span(buf_span(heard), span_of(events), label);
    buf_release(heard);
}

static void events_are_parsed_however_the_input_is_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(streams); i++) {
        const struct stream_row *row = &streams[i];
        for (size_t first = 0; first <= row->len; first++)
            for (size_t second = first; second <= row->len; second++) {
                struct sse_parser parser;
                struct buf heard = {0};
                sse_init(&parser, MAX);
                assert_true(push(&parser, span_make(row->stream, first), &heard));
                assert_true(push(&parser, span_make(row->stream + first, second - first), &heard));
                assert_true(push(&parser, span_make(row->stream + second, row->len - second), &heard));
                assert_heard(&heard, row->events, row->stream);
                assert_int_equal(parser.retry_ms, row->retry);
                sse_release(&parser);
            }
    }
}

static void events_are_parsed_byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(streams); i++) {
        struct sse_parser parser;
        struct buf heard = {0};
        sse_init(&parser, MAX);
        for (size_t k = 0; k < streams[i].len; k++)
            assert_true(push(&parser, span_make(streams[i].stream + k, 1), &heard));
        assert_heard(&heard, streams[i].events, streams[i].stream);
        sse_release(&parser);
    }
}

static void input_after_an_event_waits_for_the_next_call(void **state)
{
    (void)state;
    struct sse_parser parser;
    struct sse_event event;
    struct span bytes = SPAN("data: a\n\ndata: b\n\n");
    sse_init(&parser, MAX);
    assert_int_equal(sse_next(&parser, &bytes, &event), SSE_EVENT);
    assert_span(event.data, SPAN("a"), "first");
    assert_span(bytes, SPAN("data: b\n\n"), "the rest");
    assert_int_equal(sse_next(&parser, &bytes, &event), SSE_EVENT);
    assert_span(event.data, SPAN("b"), "second");
    assert_int_equal(sse_next(&parser, &bytes, &event), SSE_MORE);
    sse_release(&parser);
}

// The caller takes the memory of the data, and the parser continues without it.
static void the_data_of_an_event_can_be_taken(void **state)
{
    (void)state;
    struct sse_parser parser;
    struct sse_event event;
    struct span bytes = SPAN("id: 1\ndata: abc"), rest = SPAN("def\ndata: ghi\n\ndata: j\n\n");
    sse_init(&parser, MAX);
    assert_int_equal(sse_next(&parser, &bytes, &event), SSE_MORE);
    assert_int_equal(sse_next(&parser, &rest, &event), SSE_EVENT);
    const char *at = event.data.at;
    struct blob *taken = sse_take(&parser);
    assert_ptr_equal(taken->at, at);
    assert_int_equal(sse_next(&parser, &rest, &event), SSE_EVENT);
    assert_span(event.data, SPAN("j"), "next");
    assert_span(event.id, SPAN("1"), "id");
    assert_span(blob_span(taken), SPAN("abcdef\nghi"), "taken");
    blob_unref(taken);
    sse_release(&parser);
}

// Feeds a stream in pieces; false if an event was too large.
static bool feed(struct span stream, size_t piece, struct buf *heard)
{
    struct sse_parser parser;
    bool ok = true;
    sse_init(&parser, MAX);
    for (size_t at = 0; at < stream.len; at += piece)
        ok &= push(&parser, span_make(stream.at + at, stream.len - at < piece ? stream.len - at : piece), heard);
    sse_release(&parser);
    return ok;
}

static struct buf event_of(size_t size, size_t lines)
{
    struct buf stream = {0};
    for (size_t i = 0; i < lines; i++) {
        buf_put_text(&stream, "data: ");
        for (size_t k = 0; k < size; k++)
            buf_put_char(&stream, 'x');
        buf_put_char(&stream, '\n');
    }
    buf_put_char(&stream, '\n');
    return stream;
}

static void an_event_above_the_maximum_is_reported_once_and_skipped(void **state)
{
    (void)state;
    static const struct {
        size_t size, lines;
        bool ok;
    } rows[] = {{MAX, 1, true}, {MAX / 4 - 1, 4, true}, {MAX * 2, 1, false}, {MAX / 2, 4, false}, {1, MAX * 2, false}};
    static const size_t pieces[] = {1, 7, 64, 1 << 20};
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(pieces); k++) {
            struct buf heard = {0};
            struct buf stream = event_of(rows[i].size, rows[i].lines);
            if (!rows[i].ok)
                buf_put_text(&stream, "event: next\nid: 9\ndata: y\n\n");
            assert_int_equal(feed(buf_span(&stream), pieces[k], &heard), rows[i].ok);
            if (!rows[i].ok)
                assert_span(buf_span(&heard), SPAN("next|9|y;"), "what follows");
            assert_true(heard.len > 0);
            buf_release(&heard);
            buf_release(&stream);
        }
}

static void the_bound_of_an_event_does_not_depend_on_the_split(void **state)
{
    (void)state;
    for (size_t size = MAX - 2; size < MAX + 80; size++) {
        struct buf stream = event_of(size, 1);
        struct buf whole = {0}, pieces = {0};
        bool first = feed(buf_span(&stream), 1 << 20, &whole), second = feed(buf_span(&stream), 16, &pieces);
        buf_release(&whole);
        buf_release(&pieces);
        buf_release(&stream);
        assert_int_equal(first, second);
    }
}

static void a_line_without_an_end_is_bounded_and_skipped(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 16, 1 << 20};
    static const char *const begins[] = {"", ":", "event:", "id:", "retry:"};
    for (size_t i = 0; i < COUNT(begins); i++)
        for (size_t k = 0; k < COUNT(pieces); k++) {
            struct buf heard = {0}, stream = {0};
            buf_put_text(&stream, begins[i]);
            for (size_t n = 0; n < MAX * 4; n++)
                buf_put_char(&stream, 'x');
            buf_put_text(&stream, "\ndata: y\n\n");
            assert_true(feed(buf_span(&stream), pieces[k], &heard));
            assert_span(buf_span(&heard), SPAN("message||y;"), begins[i]);
            buf_release(&heard);
            buf_release(&stream);
        }
}

static void written_events_are_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *id, *type, *data, *events, *raw;
    } rows[] = {
        {"", "", "{}", "message||{};", "data: {}\n\n"},
        {"5", "", "{}", "message|5|{};", "id: 5\ndata: {}\n\n"},
        {"5", "endpoint", "/x", "endpoint|5|/x;", "event: endpoint\nid: 5\ndata: /x\n\n"},
        {"5", "", "", "message|5|;", "id: 5\ndata: \n\n"},
        {"", "", "a\nb", "message||a\nb;", "data: a\ndata: b\n\n"},
        {"", "", "a\n\nb\n", "message||a\n\nb\n;", "data: a\ndata: \ndata: b\ndata: \n\n"},
        {"", "", "\n", "message||\n;", "data: \ndata: \n\n"},
        {"", "", "a\rb", "message||a\nb;", "data: a\ndata: b\n\n"},
        {"", "", " lead", "message|| lead;", "data:  lead\n\n"},
        {"", "", ":x", "message||:x;", "data: :x\n\n"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf out = {0};
        struct buf heard = {0};
        sse_put(&out, span_of(rows[i].id), span_of(rows[i].type), span_of(rows[i].data));
        assert_span(buf_span(&out), span_of(rows[i].raw), rows[i].data);
        assert_true(feed(buf_span(&out), 3, &heard));
        assert_heard(&heard, rows[i].events, rows[i].data);
        buf_release(&out);
    }
    struct buf out = {0};
    sse_put(&out, (struct span){0}, (struct span){0}, (struct span){0});
    assert_span(buf_span(&out), SPAN("data: \n\n"), "nothing at all");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_parsed_however_the_input_is_split),
        cmocka_unit_test(events_are_parsed_byte_by_byte),
        cmocka_unit_test(input_after_an_event_waits_for_the_next_call),
        cmocka_unit_test(the_data_of_an_event_can_be_taken),
        cmocka_unit_test(an_event_above_the_maximum_is_reported_once_and_skipped),
        cmocka_unit_test(the_bound_of_an_event_does_not_depend_on_the_split),
        cmocka_unit_test(a_line_without_an_end_is_bounded_and_skipped),
        cmocka_unit_test(written_events_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
