// Tests the outbox of a stdio server: framing, order, partial writes to a pipe, and which messages can still be dropped.
#include "base/mem.h"
#include "base/pieces.h"
#include "outbox.h"
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static int ends[2];
static struct outbox outbox;
static struct buf got;

static int set_up(void **state)
{
    (void)state;
    outbox = (struct outbox){0};
    got = (struct buf){0};
    return pipe2(ends, O_NONBLOCK | O_CLOEXEC);
}

static int tear_down(void **state)
{
    (void)state;
    outbox_release(&outbox);
    buf_release(&got);
    close(ends[0]);
    return close(ends[1]);
}

static void put(struct span text, uint64_t id, bool counted)
{
    struct blob *blob = blob_copy(text);
    outbox_put(&outbox, blob, id, counted);
    blob_unref(blob);
}

static void take(size_t max)
{
    char block[4096];
    ssize_t count;
    for (; max && (count = read(ends[0], block, max < sizeof block ? max : sizeof block)) > 0; max -= (size_t)count)
        buf_put(&got, block, (size_t)count);
}

// Writes and reads in turn until the outbox is empty; returns the number of writes.
static size_t pass_all(size_t at_once)
{
    size_t writes = 1;
    while (outbox_write(&outbox, ends[1]) == OUTBOX_MORE && writes++ < 100000)
        take(at_once);
    take(SIZE_MAX);
    return writes;
}

static void messages_are_framed_and_written_in_order(void **state)
{
    (void)state;
    put(SPAN("{\"a\":\n1\r\n}"), 0, false);
    put(SPAN("{\"b\":\n2}"), 7, true);
    put(SPAN("{}"), 0, false);
    assert_int_equal(outbox_write(&outbox, ends[1]), OUTBOX_EMPTY);
    take(SIZE_MAX);
    assert_string_equal(buf_text(&got), "{\"a\": 1  }\nContent-Length: 8\r\n\r\n{\"b\":\n2}{}\n");
    assert_int_equal(outbox.bytes, 0);
}

// Returns a text in parts, with line ends at their borders.
static struct blob *make_large(struct buf *expected)
{
    struct pieces pieces = {0};
    struct buf text = {0};
    for (int i = 0; i < 60000; i++)
        buf_printf(&text, "%d,\n", i);
    struct blob *owner = blob_take(&text);
    struct span all = blob_span(owner);
    buf_put_text(&pieces.tail, "[");
    pieces_share(&pieces, owner, span_make(all.at, 150000));
    buf_put_text(&pieces.tail, "\n");
    pieces_share(&pieces, owner, span_after(all, 150000));
    buf_put_text(&pieces.tail, "0]");
    blob_unref(owner);
    struct blob *large = pieces_take(&pieces);
    struct blob_reader reader = {.blob = large};
    buf_reserve(expected, large->len);
    expected->len = blob_read(&reader, expected->at, large->len);
    for (size_t i = 0; i < expected->len; i++)
        if (expected->at[i] == '\n')
            expected->at[i] = ' ';
    return large;
}

static void a_large_message_passes_in_pieces_between_small_ones(void **state)
{
    (void)state;
    static const size_t steps[] = {1000, 4096, 70000};
    for (size_t i = 0; i < COUNT(steps); i++) {
        struct buf expected = {0}, all = {0};
        struct blob *large = make_large(&expected);
        buf_clear(&got);
        put(SPAN("{\"first\":1}"), 1, false);
        outbox_put(&outbox, large, 2, false);
        put(SPAN("{\"last\":1}"), 3, false);
        blob_unref(large);
        assert_true(pass_all(steps[i]) > 2);
        buf_printf(&all, "{\"first\":1}\n%.*s\n{\"last\":1}\n", SPAN_ARG(buf_span(&expected)));
        assert_string_equal(buf_text(&got), buf_text(&all));
        assert_true(outbox.staged.room <= (256U << 10));
        buf_release(&expected);
        buf_release(&all);
    }
}

static void a_message_that_was_not_begun_can_be_dropped(void **state)
{
    (void)state;
    char *filler = mem_alloc(300001);
    memset(filler, 'x', 300000);
    put(span_make(filler, 300000), 1, false);
    put(SPAN("{\"two\":2}"), 2, false);
    put(SPAN("{\"three\":3}"), 3, false);
    assert_int_equal(outbox_write(&outbox, ends[1]), OUTBOX_MORE);
    assert_int_equal(outbox_unsent(&outbox, 0), 0);
    assert_int_equal(outbox_unsent(&outbox, 1), 2);
    outbox_drop(&outbox, 1);
    assert_int_equal(outbox.bytes, 300000 + strlen("{\"three\":3}"));
    (void)pass_all(5000);
    assert_int_equal(got.len, 300001 + strlen("{\"three\":3}\n"));
    assert_string_equal(buf_text(&got) + 300001, "{\"three\":3}\n");
    free(filler);
}

// Small messages fill the pipe. Those that do not fit stay in the outbox, and can be dropped if no byte of them was written.
static void small_messages_behind_a_full_pipe_can_be_dropped(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'y', sizeof text);
    for (uint64_t id = 1; id <= 200; id++)
        put(span_make(text, sizeof text), id, false);
    assert_int_equal(outbox_write(&outbox, ends[1]), OUTBOX_MORE);
    size_t left = outbox.count, begun = outbox_unsent(&outbox, 0) ? 0 : 1;
    assert_true(left > 100);
    while (outbox.count > begun)
        outbox_drop(&outbox, outbox.count - 1);
    (void)pass_all(SIZE_MAX);
    assert_int_equal(got.len, (200 - left + begun) * 1001);
    assert_int_equal(outbox.count, 0);
}

static void a_pipe_without_a_reader_is_broken(void **state)
{
    (void)state;
    close(ends[0]);
    put(SPAN("{}"), 1, false);
    assert_int_equal(outbox_write(&outbox, ends[1]), OUTBOX_BROKEN);
    ends[0] = dup(ends[1]);
}

#define BOX_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOX_TEST(messages_are_framed_and_written_in_order),
        BOX_TEST(a_large_message_passes_in_pieces_between_small_ones),
        BOX_TEST(a_message_that_was_not_begun_can_be_dropped),
        BOX_TEST(small_messages_behind_a_full_pipe_can_be_dropped),
        BOX_TEST(a_pipe_without_a_reader_is_broken),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
