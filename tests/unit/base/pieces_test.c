// Tests texts in pieces: which parts are shared and which are copied, and reading them.
#include "base/mem.h"
#include "base/pieces.h"
#include "unit.h"
#include <stdlib.h>

static struct blob *blob_of(char c, size_t len)
{
    struct buf text = {0};
    buf_reserve(&text, len);
    memset(text.at, c, len);
    text.len = len;
    return blob_take(&text);
}

// Returns the whole text, read in steps of `step` bytes.
static char *read_all(const struct blob *blob, size_t step)
{
    struct blob_reader reader = {.blob = blob};
    char *text = mem_alloc(blob->len + step + 1);
    size_t len = 0, got;
    while ((got = blob_read(&reader, text + len, step)))
        len += got;
    assert_int_equal(len, blob->len);
    return text;
}

static void large_parts_are_shared_and_small_ones_copied(void **state)
{
    (void)state;
    struct pieces pieces = {0};
    struct blob *large = blob_of('x', 100000), *small = blob_of('y', 10);
    buf_put_text(&pieces.tail, "<");
    pieces_share(&pieces, large, span_make(large->at + 1, 50000));
    buf_put_text(&pieces.tail, "-");
    pieces_share(&pieces, small, blob_span(small));
    buf_put_text(&pieces.tail, "-");
    pieces_share(&pieces, large, span_make(large->at + 60000, 40000));
    buf_put_text(&pieces.tail, ">");
    assert_int_equal(pieces_len(&pieces), 90014);
    assert_int_equal(large->refs, 3);
    assert_int_equal(small->refs, 1);
    const char *shared = large->at + 1;
    blob_unref(large);
    blob_unref(small);
    struct blob *whole = pieces_take(&pieces);
    assert_int_equal(pieces_len(&pieces), 0);
    assert_int_equal(whole->len, 90014);
    assert_int_equal(blob_count(whole), 5);
    assert_span(blob_part(whole, 0), SPAN("<"), "head");
    assert_ptr_equal(blob_part(whole, 1).at, shared);
    assert_span(blob_part(whole, 2), SPAN("-yyyyyyyyyy-"), "the text between two shared parts is one part");
    assert_int_equal(blob_part(whole, 3).len, 40000);
    assert_span(blob_part(whole, 4), SPAN(">"), "tail");
    static const size_t steps[] = {1, 7, 4096, 1 << 20};
    for (size_t i = 0; i < COUNT(steps); i++) {
        char *text = read_all(whole, steps[i]);
        assert_int_equal(text[0], '<');
        assert_int_equal(strspn(text + 1, "x"), 50000);
        assert_memory_equal(text + 50001, "-yyyyyyyyyy-", 12);
        assert_int_equal(strspn(text + 50013, "x"), 40000);
        assert_string_equal(text + 90013, ">");
        free(text);
    }
    blob_unref(whole);
}

static void a_short_text_is_one_run_of_bytes(void **state)
{
    (void)state;
    struct pieces pieces = {0};
    buf_put_text(&pieces.tail, "abc");
    struct blob *blob = pieces_take(&pieces);
    assert_span(blob_span(blob), SPAN("abc"), "flat");
    assert_int_equal(blob_count(blob), 1);
    char *text = read_all(blob, 2);
    assert_string_equal(text, "abc");
    free(text);
    blob_unref(blob);
    blob = pieces_take(&pieces);
    assert_int_equal(blob->len, 0);
    assert_int_equal(blob_read(&(struct blob_reader){.blob = blob}, (char[1]){0}, 1), 0);
    blob_unref(blob);
}

static void a_large_text_is_one_part_of_its_blob(void **state)
{
    (void)state;
    struct pieces pieces = {0};
    for (int i = 0; i < 10000; i++)
        buf_put_text(&pieces.tail, "0123456789");
    struct blob *blob = pieces_take(&pieces);
    assert_null(blob->at);
    assert_int_equal(blob_count(blob), 1);
    assert_int_equal(blob->len, 100000);
    blob_unref(blob);
}

static void a_blob_in_parts_may_be_a_part_of_another_blob(void **state)
{
    (void)state;
    struct pieces inner = {0}, outer = {0};
    struct blob *large = blob_of('x', 5000);
    buf_put_text(&inner.tail, "(");
    pieces_share(&inner, large, blob_span(large));
    buf_put_text(&inner.tail, ")");
    struct blob *one = pieces_take(&inner);
    buf_put_text(&outer.tail, "[");
    pieces_share_all(&outer, one);
    buf_put_text(&outer.tail, ",");
    pieces_share_all(&outer, large);
    buf_put_text(&outer.tail, "]");
    blob_unref(one);
    blob_unref(large);
    struct blob *all = pieces_take(&outer);
    assert_int_equal(all->len, 10005);
    assert_span(blob_part(all, 0), SPAN("[("), "head");
    assert_span(blob_part(all, 2), SPAN("),"), "between");
    char *text = read_all(all, 100);
    assert_memory_equal(text + 5002, "),x", 3);
    free(text);
    blob_unref(all);
    buf_put_text(&outer.tail, "given up");
    pieces_release(&outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_parts_are_shared_and_small_ones_copied),
        cmocka_unit_test(a_short_text_is_one_run_of_bytes),
        cmocka_unit_test(a_large_text_is_one_part_of_its_blob),
        cmocka_unit_test(a_blob_in_parts_may_be_a_part_of_another_blob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
