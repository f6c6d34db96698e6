// Tests the byte buffer, blobs and arenas.
#include "base/arena.h"
#include "base/blob.h"
#include "mem.h"
#include "unit.h"
#include <stdalign.h>
#include <stdlib.h>

static void a_buffer_appends_bytes_and_formatted_text(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_put_text(&buf, "a");
    buf_put_char(&buf, '-');
    buf_put_span(&buf, SPAN("b\0c"));
    buf_printf(&buf, "[%d]", 7);
    assert_span(buf_span(&buf), SPAN("a-b\0c[7]"), "contents");
    assert_int_equal(strlen(buf_text(&buf) + 4), 4);
    buf_clear(&buf);
    buf_printf(&buf, "%0300d", 5);
    assert_int_equal(buf.len, 300);
    assert_int_equal(strspn(buf_text(&buf), "0"), 299);
    buf_release(&buf);
    assert_null(buf.at);
}

static void integers_are_written_to_their_limits(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        const char *text;
    } rows[] = {{0, "0"},         {7, "7"},
                {-1, "-1"},       {1234567890, "1234567890"},
                {-10, "-10"},     {INT64_MAX, "9223372036854775807"},
                {100, "100"},     {INT64_MIN, "-9223372036854775808"},
                {99, "99"},       {1005, "1005"},
                {12345, "12345"}, {1000000, "1000000"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf buf = {0};
        buf_put_int(&buf, rows[i].value);
        assert_span(buf_span(&buf), span_of(rows[i].text), rows[i].text);
        buf_release(&buf);
    }
}

static void a_buffer_drops_bytes_beyond_its_maximum(void **state)
{
    (void)state;
    struct buf buf = {.max = 4};
    buf_put_text(&buf, "abc");
    buf_put_text(&buf, "d");
    assert_false(buf.overflow);
    buf_put_text(&buf, "");
    assert_false(buf.overflow);
    buf_put_text(&buf, "e");
    assert_true(buf.overflow);
    assert_span(buf_span(&buf), SPAN("abcd"), "full");
    buf_clear(&buf);
    buf_put_text(&buf, "12345");
    buf_put_text(&buf, "1");
    assert_true(buf.overflow);
    assert_int_equal(buf.len, 0);
    buf_release(&buf);
    assert_int_equal(buf.max, 4);
    assert_false(buf.overflow);
}

static void a_buffer_drops_bytes_from_its_front(void **state)
{
    (void)state;
    static const struct {
        size_t drop;
        const char *left;
    } rows[] = {{0, "abcdef"}, {2, "cdef"}, {6, ""}, {9, ""}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf buf = {0};
        buf_drop_front(&buf, rows[i].drop);
        buf_put_text(&buf, "abcdef");
        buf_drop_front(&buf, rows[i].drop);
        assert_span(buf_span(&buf), span_of(rows[i].left), rows[i].left);
        buf_release(&buf);
    }
}

static void a_buffer_grows_with_its_content(void **state)
{
    (void)state;
    struct buf buf = {0};
    for (uint32_t i = 0; i < 300000; i++)
        buf_put(&buf, &i, sizeof i);
    assert_int_equal(buf.len, 1200000);
    for (uint32_t i = 0, got; i < 300000; i += 777) {
        memcpy(&got, buf.at + i * sizeof i, sizeof got);
        assert_int_equal(got, i);
    }
    buf_release(&buf);
}

static void a_taken_buffer_hands_over_its_memory(void **state)
{
    (void)state;
    struct buf buf = {.max = 100};
    size_t len = 9;
    char *nothing = buf_take(&buf, &len);
    assert_string_equal(nothing, "");
    assert_int_equal(len, 0);
    free(nothing);
    buf_put_text(&buf, "abc");
    char *text = buf_take(&buf, &len);
    assert_string_equal(text, "abc");
    assert_int_equal(len, 3);
    assert_null(buf.at);
    assert_int_equal(buf.max, 100);
    free(text);
}

static void a_blob_lives_until_its_last_reference_is_dropped(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_put_text(&buf, "message");
    struct blob *blob = blob_take(&buf);
    assert_null(buf.at);
    assert_ptr_equal(blob_ref(blob), blob);
    blob_unref(blob);
    assert_span(blob_span(blob), SPAN("message"), "still there");
    blob_unref(blob);
    blob = blob_copy(SPAN("a\0b"));
    assert_span(blob_span(blob), SPAN("a\0b"), "copied");
    blob_unref(blob);
    blob_unref(NULL);
}

static void an_arena_returns_zeroed_aligned_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 0, 15, 16, 17, 511, 512, 513, 2048, 2049, 100000, 3};
    struct arena arena = {0};
    char *blocks[COUNT(sizes) * 20];
    size_t n = 0;
    for (size_t round = 0; round < 20; round++)
        for (size_t i = 0; i < COUNT(sizes); i++, n++) {
            char *block = blocks[n] = arena_alloc(&arena, sizes[i]);
            assert_int_equal((uintptr_t)block % alignof(max_align_t), 0);
            for (size_t k = 0; k < sizes[i]; k++)
                assert_int_equal(block[k], 0);
            memset(block, (int)(n % 127) + 1, sizes[i]);
        }
    for (size_t k = 0; k < n; k++)  // the blocks do not overlap
        for (size_t b = 0; b < sizes[k % COUNT(sizes)]; b += 97)
            assert_int_equal(blocks[k][b], (int)(k % 127) + 1);
    arena_release(&arena);
    assert_null(arena.chunks);
    arena_release(&arena);
}

static void arenas_that_share_a_store_return_zeroed_memory(void **state)
{
    (void)state;
    struct arena_store store = {0};
    for (size_t round = 0; round < 3; round++) {
        struct arena arenas[2] = {{.store = &store}, {.store = &store}};
        for (size_t i = 0; i < 200; i++) {
            char *block = arena_alloc(&arenas[i % 2], 300);
            for (size_t k = 0; k < 300; k++)
                assert_int_equal(block[k], 0);
            memset(block, 'x', 300);
        }
        arena_release(&arenas[0]);
        arena_release(&arenas[1]);
    }
    arena_store_release(&store);
    assert_int_equal(store.count, 0);
}

static void an_arena_copies_bytes_and_terminates_them(void **state)
{
    (void)state;
    struct arena arena = {0};
    char *copy = arena_copy(&arena, SPAN("abc"));
    struct span span = arena_span(&arena, SPAN("x\0y"));
    assert_string_equal(copy, "abc");
    assert_span(span, SPAN("x\0y"), "span");
    assert_int_equal(span.at[3], 0);
    assert_string_equal(arena_copy(&arena, (struct span){NULL, 0}), "");
    arena_release(&arena);
}

static void a_wipe_clears_its_range_and_no_other_byte(void **state)
{
    (void)state;
    enum { SIZE = 4 << 20 };
    static const size_t ranges[][2] = {{0, 10}, {1, 1 << 20}, {4095, (3 << 20) + 17}, {65536, 2 << 20}, {7, 0}};
    char *block = mem_alloc(SIZE);
    for (size_t i = 0; i < COUNT(ranges); i++) {
        memset(block, 'x', SIZE);
        mem_wipe(block + ranges[i][0], ranges[i][1]);
        for (size_t at = 0; at < SIZE; at++)
            if ((block[at] == 0) != (at >= ranges[i][0] && at < ranges[i][0] + ranges[i][1]))
                fail_msg("range %zu, byte %zu", i, at);
    }
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_appends_bytes_and_formatted_text),
        cmocka_unit_test(integers_are_written_to_their_limits),
        cmocka_unit_test(a_buffer_drops_bytes_beyond_its_maximum),
        cmocka_unit_test(a_buffer_drops_bytes_from_its_front),
        cmocka_unit_test(a_buffer_grows_with_its_content),
        cmocka_unit_test(a_taken_buffer_hands_over_its_memory),
        cmocka_unit_test(a_blob_lives_until_its_last_reference_is_dropped),
        cmocka_unit_test(a_wipe_clears_its_range_and_no_other_byte),
        cmocka_unit_test(an_arena_returns_zeroed_aligned_memory),
        cmocka_unit_test(arenas_that_share_a_store_return_zeroed_memory),
        cmocka_unit_test(an_arena_copies_bytes_and_terminates_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
