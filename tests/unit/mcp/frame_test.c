// Tests stdio framing: lines and Content-Length mixed, any split of the input, junk, and recovery after a message that is too large.
#include "mcp/frame.h"
#include "unit.h"

#define MAX 64

#define X10 "xxxxxxxxxx"
#define X100 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
#define X1000 X100 X100 X100 X100 X100 X100 X100 X100 X100 X100

// The output has a mark for each status: "<text>" a message, "#text>" one with Content-Length, "!" too large, "?text>" junk.
static const struct input_row {
    const char *input;
    size_t len;
    const char *output;
} inputs[] = {
    {LIT(""), ""},
    {LIT("{\"a\":1}\n"), "<{\"a\":1}>"},
    {LIT("{\"a\":1}\r\n"), "<{\"a\":1}>"},
    {LIT(" \t{\"a\":1} \t\r\n"), "<{\"a\":1}>"},
    {LIT("[1]\n{}\n"), "<[1]><{}>"},
    {LIT("{}"), ""},
    {LIT("\n\r\n\n{}\n\n \n\t\r\n[]\n"), "<{}><[]>"},
    {LIT("\xEF\xBB\xBF\n\xEF\xBB\xBF {}\n"), "<{}>"},
    {LIT("Content-Length: 2\r\n\r\n{}"), "#{}>"},
    {LIT("Content-Length: 2\n\n{}"), "#{}>"},
    {LIT("content-length:2\r\n\r\n{}"), "#{}>"},
    {LIT("CONTENT-LENGTH:    2\r\nContent-Type: application/json\r\n\r\n{}"), "#{}>"},
    {LIT("Content-Length: 9\r\n\r\n{\"a\":\n\n1}{}\n"), "#{\"a\":\n\n1}><{}>"},
    {LIT("{}\nContent-Length: 2\r\n\r\n[]{}\nContent-Length: 4\n\n{\n\n}\n[1]\n"), "<{}>#[]><{}>#{\n\n}><[1]>"},
    {LIT("Content-Length: 2\r\n\r\n{}\r\n\r\nContent-Length: 2\r\n\r\n[]"), "#{}>#[]>"},
    {LIT("Content-Length: 3\r\n\r\n{}"), ""},
    {LIT("Content-Length: 2\r\n"), ""},
    {LIT("hello\n{}\n"), "?hello><{}>"},
    {LIT("hello world \r\n{}\n"), "?hello world><{}>"},
    {LIT("\"text\"\n1\nnull\n{}\n"), "?\"text\">?1>?null><{}>"},
    {LIT("Content-Typo: 2\n{}\n"), "?Content-Typo: 2><{}>"},
    {LIT("Content-Type: x\r\nContent-Length: 2\r\n\r\n{}"), "?Content-Type: x>#{}>"},
    {LIT("{" X100 "}\n{}\n"), "!<{}>"},
    {LIT("{" X1000 "}\n{}\n"), "!<{}>"},
    {LIT(X1000 "\n" X1000 "\n{}\n"), "!!<{}>"},
    {LIT("{" X100 "}\r\nContent-Length: 2\r\n\r\n{}"), "!#{}>"},
    {LIT("Content-Length: 100\r\n\r\n" X100 "{}\n"), "!<{}>"},
    {LIT("Content-Length: 100\r\n\r\n" X100 "Content-Length: 2\r\n\r\n{}"), "!#{}>"},
    {LIT("Content-Length: 1000\r\n\r\n" X1000 "{}\n"), "!<{}>"},
    {LIT("Content-Length: 1000\r\n\r\n" X1000 "Content-Length: 1000\r\n\r\n" X1000 "[]\n"), "!!<[]>"},
    {LIT("Content-Length: 65\r\n\r\n"), ""},  // too large, but reported only with the beginning of its text
    {LIT("Content-Length: 1000\r\n\r\n" X100), "!"},
    {LIT("\xEF\xBB\xBF{\"a\":1}\n\xEF\xBB\xBF[1]\r\n"), "<{\"a\":1}><[1]>"},
    {LIT("\n \xEF\xBB\xBFhello\n\xEF\xBB\n{}\n"), "?hello>?\xEF\xBB><{}>"},
    {LIT("\xEF\xBB\xBF"
         "Content-Length: 2\r\n\r\n{}"),
     "#{}>"},
};

static void take_all(struct frame *frame, struct buf *out)
{
    struct span text = {0};
    enum frame_status status;
    while ((status = frame_next(frame, &text)) != FRAME_MORE) {
        if (status == FRAME_TOO_LARGE)
            assert_true(text.len >= MAX);  // the beginning of the message
        assert_true(text.at >= frame->in.at && text.at + text.len <= frame->in.at + frame->in.len);
        if (status == FRAME_TOO_LARGE) {
            buf_put_char(out, '!');
            continue;
        }
        buf_put_char(out, status == FRAME_JUNK ? '?' : frame->content_length ? '#' : '<');
        buf_put_span(out, text);
        buf_put_char(out, '>');
    }
}

static void feed(struct frame *frame, struct span bytes, struct buf *out)
{
    size_t room;
    char *at = frame_room(frame, bytes.len, &room);
    assert_true(room >= bytes.len);
    if (bytes.len)
        memcpy(at, bytes.at, bytes.len);
    frame_fed(frame, bytes.len);
    take_all(frame, out);
}

static void messages_are_framed_however_the_input_is_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(inputs); i++)
        for (size_t split = 0; split <= inputs[i].len; split++) {
            struct frame frame;
            struct buf out = {0};
            frame_init(&frame, MAX);
            feed(&frame, span_make(inputs[i].input, split), &out);
            feed(&frame, span_make(inputs[i].input + split, inputs[i].len - split), &out);
            assert_span(buf_span(&out), span_of(inputs[i].output), inputs[i].input);
            buf_release(&out);
            frame_release(&frame);
        }
}

static void messages_are_framed_from_pieces_of_any_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(inputs); i++)
        for (size_t piece = 1; piece < 40; piece++) {
            struct frame frame;
            struct buf out = {0};
            frame_init(&frame, MAX);
            for (size_t at = 0; at < inputs[i].len; at += piece)
                feed(&frame, span_make(inputs[i].input + at, inputs[i].len - at < piece ? inputs[i].len - at : piece),
                     &out);
            assert_span(buf_span(&out), span_of(inputs[i].output), inputs[i].input);
            buf_release(&out);
            frame_release(&frame);
        }
}

// The bytes after the message are moved to new memory.
static void a_message_can_be_taken_with_its_memory(void **state)
{
    (void)state;
    static const char input[] = " {\"a\":1}\nContent-Length: 2\r\n\r\n[]{\"b\"";
    struct frame frame;
    struct span text;
    struct buf out = {0};
    size_t room;
    frame_init(&frame, MAX);
    memcpy(frame_room(&frame, sizeof input, &room), input, sizeof input - 1);
    frame_fed(&frame, sizeof input - 1);
    assert_int_equal(frame_next(&frame, &text), FRAME_MESSAGE);
    struct blob *taken = frame_take(&frame);
    feed(&frame, SPAN(":2}\n"), &out);
    assert_span(buf_span(&out), SPAN("#[]><{\"b\":2}>"), "what follows");
    assert_true(text.at >= taken->at && text.at + text.len <= taken->at + taken->len);
    assert_span(text, SPAN("{\"a\":1}"), "taken");
    blob_unref(taken);
    buf_release(&out);
    frame_release(&frame);
}

static void a_message_of_the_maximum_size_passes(void **state)
{
    (void)state;
    static const char *const ends[] = {"\n", "\r\n"};
    for (size_t size = MAX - 1; size <= MAX + 1; size++)
        for (size_t e = 0; e < COUNT(ends); e++)
            for (int counted = 0; counted < 2; counted++)
                for (size_t piece = 1; piece <= 200; piece += 199) {
                    struct frame frame;
                    struct buf in = {0}, out = {0};
                    if (counted)
                        buf_printf(&in, "Content-Length: %zu\r\n\r\n", size);
                    buf_put_char(&in, '{');
                    while (in.len < (counted ? 22 : 0) + size - 1)
                        buf_put_char(&in, ' ');
                    buf_put_char(&in, '}');
                    buf_put_text(&in, ends[e]);
                    frame_init(&frame, MAX);
                    for (size_t at = 0; at < in.len; at += piece)
                        feed(&frame, span_make(in.at + at, in.len - at < piece ? in.len - at : piece), &out);
                    assert_int_equal(out.at[0], size > MAX ? '!' : counted ? '#' : '<');
                    buf_release(&in);
                    buf_release(&out);
                    frame_release(&frame);
                }
}

static void a_header_without_an_end_is_junk(void **state)
{
    (void)state;
    struct frame frame;
    struct buf in = {0}, out = {0};
    buf_put_text(&in, "Content-Length: 2\r\nX: ");
    for (int i = 0; i < 5000; i++)
        buf_put_char(&in, 'x');
    frame_init(&frame, MAX);
    feed(&frame, buf_span(&in), &out);
    assert_int_equal(out.at[0], '?');
    buf_clear(&out);
    feed(&frame, SPAN("\n{}\n"), &out);
    assert_span(buf_span(&out), SPAN("<{}>"), "recovered");
    buf_release(&in);
    buf_release(&out);
    frame_release(&frame);
}

static void a_flood_of_blank_lines_does_not_use_the_stack(void **state)
{
    (void)state;
    struct frame frame;
    struct buf in = {0}, out = {0};
    for (int i = 0; i < 1000000; i++)
        buf_put_text(&in, " \n");
    buf_put_text(&in, "{}\n");
    frame_init(&frame, MAX);
    feed(&frame, buf_span(&in), &out);
    assert_span(buf_span(&out), SPAN("<{}>"), "after the blank lines");
    buf_release(&in);
    buf_release(&out);
    frame_release(&frame);
}

// The end of a header is searched in a limited number of bytes, so that not every piece of a long input is searched again.
static void a_header_that_ends_too_late_is_junk(void **state)
{
    (void)state;
    struct frame frame;
    struct buf in = {0}, out = {0};
    buf_put_text(&in, "Content-Length: 2\r\nX: " X1000 X1000 X1000 X1000 X1000 "\r\n\r\n{}");
    frame_init(&frame, MAX);
    feed(&frame, buf_span(&in), &out);
    assert_int_equal(out.at[0], '?');
    buf_release(&in);
    buf_release(&out);
    frame_release(&frame);
}

static void the_memory_of_a_large_message_is_released(void **state)
{
    (void)state;
    struct frame frame;
    struct buf in = {0}, out = {0};
    buf_put_text(&in, "{\"a\":\"");
    while (in.len < (size_t)3 << 20)
        buf_put_text(&in, X1000);
    buf_put_text(&in, "\"}\n");
    frame_init(&frame, (size_t)8 << 20);
    feed(&frame, buf_span(&in), &out);
    assert_int_equal(out.len, in.len + 1);
    feed(&frame, SPAN("{}\n"), &out);
    assert_in_range(frame.in.room, 1, 1 << 20);
    buf_release(&in);
    buf_release(&out);
    frame_release(&frame);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_framed_however_the_input_is_split),
        cmocka_unit_test(messages_are_framed_from_pieces_of_any_size),
        cmocka_unit_test(a_message_can_be_taken_with_its_memory),
        cmocka_unit_test(a_message_of_the_maximum_size_passes),
        cmocka_unit_test(a_header_without_an_end_is_junk),
        cmocka_unit_test(a_header_that_ends_too_late_is_junk),
        cmocka_unit_test(the_memory_of_a_large_message_is_released),
        cmocka_unit_test(a_flood_of_blank_lines_does_not_use_the_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
