// Tests message streams: order, replay and its window, slow callers, and which messages are kept without a reader.
#include "room.h"
#include "unit.h"

static const struct stream_limits wide = {.bytes = 1000, .events = 100};

struct sink {
    int woken, cut;
};

static void on_wake(void *arg) { ((struct sink *)arg)->woken++; }
static void on_cut(void *arg) { ((struct sink *)arg)->cut++; }

static void attach(struct stream *stream, struct sink *sink)
{
    *sink = (struct sink){0};
    stream_attach(stream, &(struct stream_sink){on_wake, on_cut, sink});
}

static void push(struct stream *stream, const char *text) { stream_push(stream, blob_copy(span_of(text))); }

static void push_all(struct stream *stream, const char *letters)
{
    for (char text[2] = {0}; (text[0] = *letters); letters++)
        push(stream, text);
}

// Pulls at most `at_most` messages and compares: "1a2b" is sequence 1 with "a", then 2 with "b"; "-" is a priming event.
static void assert_pulls(struct stream *stream, size_t at_most, const char *want)
{
    struct buf got = {0};
    struct stream_item item;
    for (size_t i = 0; i < at_most && stream_pull(stream, &item); i++) {
        buf_put_int(&got, (int64_t)item.sequence);
        if (item.message)
            buf_put_span(&got, blob_span(item.message));
        else
            buf_put_char(&got, '-');
    }
    assert_span(buf_span(&got), span_of(want), "pulled");
    buf_release(&got);
}

static void assert_all(struct stream *stream, const char *want) { assert_pulls(stream, SIZE_MAX, want); }

static void messages_are_read_in_order_with_their_sequence_numbers(void **state)
{
    (void)state;
    struct stream *stream = stream_new(3, true, &wide);
    assert_int_equal(stream_index(stream), 3);
    assert_true(stream_resumable(stream));
    assert_all(stream, "");
    stream_prime(stream);
    push_all(stream, "abc");
    assert_pulls(stream, 2, "1-2a");
    push(stream, "d");
    assert_all(stream, "3b4c5d");
    assert_all(stream, "");
    stream_unref(stream);
}

static void the_sink_of_a_stream_is_woken_for_every_new_message(void **state)
{
    (void)state;
    struct sink sink, other;
    struct stream *stream = stream_new(0, true, &wide);
    push(stream, "a");
    assert_false(stream_attached(stream));
    attach(stream, &sink);
    assert_true(stream_attached(stream));
    push(stream, "b");
    stream_prime(stream);
    assert_int_equal(sink.woken, 2);
    stream_end(stream);
    stream_end(stream);
    assert_int_equal(sink.woken, 3);
    stream_detach(stream, &other);
    assert_true(stream_attached(stream));
    stream_detach(stream, &sink);
    assert_false(stream_attached(stream));
    assert_int_equal(sink.cut, 0);
    stream_unref(stream);
}

static void a_stream_is_over_when_it_has_ended_and_all_messages_are_read(void **state)
{
    (void)state;
    struct stream *stream = stream_new(0, true, &wide);
    push(stream, "a");
    assert_false(stream_over(stream));
    stream_end(stream);
    assert_true(stream_ended(stream));
    assert_false(stream_over(stream));
    assert_all(stream, "1a");
    assert_true(stream_over(stream));
    assert_true(stream_rewind(stream, 0));
    assert_false(stream_over(stream));
    assert_all(stream, "1a");
    assert_true(stream_over(stream));
    stream_unref(stream);
}

static void cutting_a_stream_notifies_its_sink_once_and_detaches_it(void **state)
{
    (void)state;
    struct sink sink;
    struct stream *stream = stream_new(0, true, &wide);
    attach(stream, &sink);
    stream_cut(stream);
    stream_cut(stream);
    assert_int_equal(sink.cut, 1);
    assert_false(stream_attached(stream));
    stream_unref(stream);
}

static void a_replay_starts_after_the_last_event_of_the_caller(void **state)
{
    (void)state;
    static const struct {
        uint64_t after;
        bool ok;
        const char *replay;
    } rows[] = {
        {0, false, ""},  {1, false, ""}, {2, true, "3c4d5e6f"}, {3, true, "4d5e6f"},
        {5, true, "6f"}, {6, true, ""},  {7, false, ""},        {UINT64_MAX, false, ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 1000, .events = 4});
        push_all(stream, "abcdef");
        assert_all(stream, "3c4d5e6f");
        assert_int_equal(stream_rewind(stream, rows[i].after), rows[i].ok);
        assert_all(stream, rows[i].replay);
        push(stream, "g");
        assert_all(stream, "7g");
        stream_unref(stream);
    }
}

static void a_stream_may_be_rewound_repeatedly_and_recounts_its_waiting_bytes(void **state)
{
    (void)state;
    struct sink sink;
    struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 10, .events = 100});
    push(stream, "aaaa");
    push(stream, "bbbb");
    assert_all(stream, "1aaaa2bbbb");
    for (int i = 0; i < 3; i++) {
        assert_true(stream_rewind(stream, 0));
        assert_pulls(stream, 1, "1aaaa");
    }
    attach(stream, &sink);
    push(stream, "cccc");  // 8 bytes wait, which is within the bound
    assert_int_equal(sink.cut, 0);
    push(stream, "dddd");
    assert_int_equal(sink.cut, 1);
    stream_unref(stream);
}

static void an_empty_stream_can_be_rewound_to_its_beginning(void **state)
{
    (void)state;
    struct stream *stream = stream_new(0, true, &wide);
    assert_true(stream_rewind(stream, 0));
    assert_false(stream_rewind(stream, 1));
    stream_unref(stream);
}

static void a_slow_attached_caller_is_disconnected_without_losing_messages(void **state)
{
    (void)state;
    struct sink sink;
    struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 3, .events = 2});
    attach(stream, &sink);
    push_all(stream, "abc");
    assert_int_equal(sink.cut, 0);
    assert_int_equal(sink.woken, 3);
    push(stream, "d");
    assert_int_equal(sink.cut, 1);
    assert_int_equal(sink.woken, 3);
    assert_false(stream_attached(stream));
    assert_all(stream, "1a2b3c4d");
    stream_unref(stream);
}

static void a_single_message_may_be_of_any_size(void **state)
{
    (void)state;
    struct sink sink;
    struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 3, .events = 5});
    attach(stream, &sink);
    push(stream, "much larger than that");
    assert_int_equal(sink.cut, 0);
    assert_all(stream, "1much larger than that");
    push(stream, "and another large one");
    assert_int_equal(sink.cut, 0);
    assert_all(stream, "2and another large one");
    stream_unref(stream);
}

static void a_stream_without_a_reader_drops_its_oldest_messages(void **state)
{
    (void)state;
    struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 1000, .events = 3});
    push_all(stream, "abcde");
    assert_false(stream_rewind(stream, 0));
    assert_false(stream_rewind(stream, 1));
    assert_all(stream, "3c4d5e");
    stream_unref(stream);

    stream = stream_new(0, true, &(struct stream_limits){.bytes = 4, .events = 100});
    push(stream, "aa");
    push(stream, "bb");
    push(stream, "cc");
    assert_all(stream, "2bb3cc");
    push(stream, "0123456789");
    assert_all(stream, "40123456789");
    stream_unref(stream);
}

static void a_gap_among_unsent_messages_is_not_hidden(void **state)
{
    (void)state;
    struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 4, .events = 100});
    push_all(stream, "ab");
    assert_all(stream, "1a2b");
    push(stream, "cc");
    push(stream, "dd");
    push(stream, "ee");                      // 3 is dropped, because no sink is attached
    assert_false(stream_rewind(stream, 2));  // a caller that has 2 would miss 3
    assert_true(stream_rewind(stream, 3));
    assert_all(stream, "4dd5ee");
    stream_unref(stream);
}

static void a_stream_that_cannot_resume_does_not_keep_messages(void **state)
{
    (void)state;
    struct stream *stream = stream_new(0, false, &wide);
    struct blob *blob = blob_copy(SPAN("a"));
    stream_push(stream, blob_ref(blob));
    push(stream, "b");
    assert_int_equal(blob->refs, 2);
    assert_pulls(stream, 1, "1a");
    assert_pulls(stream, 1, "2b");
    assert_int_equal(blob->refs, 1);
    assert_all(stream, "");
    assert_false(stream_rewind(stream, 0));
    blob_unref(blob);
    stream_unref(stream);
}

static void the_replay_window_does_not_drop_messages_that_an_attached_caller_has_not_read(void **state)
{
    (void)state;
    struct sink sink;
    struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 1000, .events = 2});
    attach(stream, &sink);
    push_all(stream, "abcdef");
    assert_int_equal(sink.cut, 0);
    assert_pulls(stream, 3, "1a2b3c");
    push(stream, "g");
    assert_all(stream, "4d5e6f7g");
    push(stream, "h");
    assert_true(stream_rewind(stream, 6));
    assert_false(stream_rewind(stream, 5));
    stream_unref(stream);
}

static void unread_answers_are_counted_separately(void **state)
{
    (void)state;
    struct sink sink;
    struct stream *stream = stream_new(0, false, &(struct stream_limits){.bytes = 10, .events = 100});
    attach(stream, &sink);
    push(stream, "a");
    for (int i = 0; i < 4; i++)
        stream_answer(stream, blob_copy(SPAN("12345678")));
    assert_int_equal(stream_unread(stream), 32);
    assert_int_equal(sink.cut, 0);
    assert_pulls(stream, 3,
                 "1a2123456783"
                 "12345678");
    assert_int_equal(stream_unread(stream), 16);
    assert_all(stream, "4123456785"
                       "12345678");
    assert_int_equal(stream_unread(stream), 0);
    stream_unref(stream);
}

static struct budget *budget_of(size_t bound)
{
    return budget_new(NULL, &(struct budget_spec){"limits.test", bound, 0});
}

static void messages_of_a_stream_count_for_its_budget_until_they_are_dropped(void **state)
{
    (void)state;
    struct budget *budget = budget_of(10000);
    struct stream *stream = stream_new(0, true, &(struct stream_limits){.bytes = 1000, .events = 2, .budget = budget});
    push_all(stream, "ab");
    assert_int_equal(budget->used, 2 * 65);
    assert_all(stream, "1a2b");
    assert_int_equal(budget->used, 2 * 65);
    push(stream, "c");
    assert_int_equal(budget->used, 2 * 65);
    stream_prime(stream);
    assert_true(stream_rewind(stream, 3));
    stream_unref(stream);
    assert_int_equal(budget->used, 0);
    budget_unref(budget);
}

static void messages_kept_for_replay_are_dropped_first_when_the_budget_is_full(void **state)
{
    (void)state;
    struct sink sink;
    struct budget *budget = budget_of(5 * 65);
    struct stream_limits limits = {.bytes = 1000, .events = 100, .budget = budget};
    struct stream *old = stream_new(0, true, &limits), *stream = stream_new(1, true, &limits);
    attach(stream, &sink);
    push_all(old, "abc");
    assert_pulls(old, 2, "1a2b");
    push_all(stream, "def");  // replaces the first message of the other stream
    assert_int_equal(sink.cut, 0);
    assert_false(stream_rewind(old, 0));
    assert_true(stream_rewind(old, 1));
    assert_all(old, "2b3c");
    assert_all(stream, "1d2e3f");
    stream_unref(old);
    stream_unref(stream);
    budget_unref(budget);
}

static void an_answer_without_an_attached_caller_is_dropped_when_the_budget_is_full(void **state)
{
    (void)state;
    struct sink sink;
    struct budget *budget = budget_of(3 * 65);
    struct stream_limits limits = {.bytes = 1000, .events = 100, .budget = budget};
    struct stream *left = stream_new(0, true, &limits);
    struct budget_hold hold = {0};
    budget_open(&hold, budget);
    attach(left, &sink);
    stream_answer(left, blob_copy(SPAN("a")));
    assert_false(budget_grow(&hold, 3 * 65, NULL));
    stream_detach(left, &sink);
    assert_true(budget_grow(&hold, 3 * 65, NULL));
    assert_all(left, "");
    assert_false(stream_rewind(left, 0));
    budget_close(&hold);
    stream_unref(left);
    budget_unref(budget);
}

static void a_caller_that_is_behind_is_disconnected_when_the_budget_is_full(void **state)
{
    (void)state;
    struct sink sink, quick;
    char large[1101] = {0};
    struct budget *budget = budget_of(sizeof large - 1 + 64 + 2 * 65);
    struct stream_limits limits = {.bytes = 10000, .events = 100, .budget = budget};
    struct stream *stream = stream_new(0, true, &limits), *other = stream_new(1, true, &limits);
    memset(large, 'x', sizeof large - 1);
    attach(stream, &sink);
    attach(other, &quick);
    push(stream, large);
    push_all(stream, "bc");
    assert_int_equal(sink.cut, 0);
    stream_prime(other);
    push_all(other, "xyz");  // a few messages may always wait, because all may have been written in one turn
    assert_int_equal(quick.cut, 0);
    push(stream, "d");
    assert_int_equal(sink.cut, 1);
    assert_all(stream, "2b3c4d");
    assert_int_equal(quick.cut, 0);
    stream_unref(stream);
    stream_unref(other);
    assert_int_equal(budget->used, 0);
    budget_unref(budget);
}

static void an_answer_with_its_own_hold_counts_once(void **state)
{
    (void)state;
    struct budget *budget = budget_of(10000);
    struct budget_hold held = {0};
    struct stream *stream =
        stream_new(0, false, &(struct stream_limits){.bytes = 1000, .events = 100, .budget = budget});
    struct blob *answer = blob_copy(SPAN("12345678"));
    budget_open(&held, budget);
    assert_true(budget_grow(&held, 1000, NULL));
    blob_hold(answer, &held, 1000);
    assert_int_equal(held.bytes, 0);
    budget_close(&held);
    stream_answer(stream, answer);
    assert_int_equal(budget->used, 1064);
    assert_all(stream, "112345678");
    assert_int_equal(budget->used, 0);
    stream_unref(stream);
    budget_unref(budget);
}

static void a_stream_lives_until_its_last_reference_is_dropped(void **state)
{
    (void)state;
    struct stream *stream = stream_new(0, true, &wide);
    assert_ptr_equal(stream_ref(stream), stream);
    push(stream, "a");
    stream_unref(stream);
    assert_all(stream, "1a");
    stream_unref(stream);
    stream_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_read_in_order_with_their_sequence_numbers),
        cmocka_unit_test(the_sink_of_a_stream_is_woken_for_every_new_message),
        cmocka_unit_test(a_stream_is_over_when_it_has_ended_and_all_messages_are_read),
        cmocka_unit_test(cutting_a_stream_notifies_its_sink_once_and_detaches_it),
        cmocka_unit_test(a_replay_starts_after_the_last_event_of_the_caller),
        cmocka_unit_test(a_stream_may_be_rewound_repeatedly_and_recounts_its_waiting_bytes),
        cmocka_unit_test(an_empty_stream_can_be_rewound_to_its_beginning),
        cmocka_unit_test(a_slow_attached_caller_is_disconnected_without_losing_messages),
        cmocka_unit_test(a_single_message_may_be_of_any_size),
        cmocka_unit_test(a_stream_without_a_reader_drops_its_oldest_messages),
        cmocka_unit_test(a_gap_among_unsent_messages_is_not_hidden),
        cmocka_unit_test(a_stream_that_cannot_resume_does_not_keep_messages),
        cmocka_unit_test(the_replay_window_does_not_drop_messages_that_an_attached_caller_has_not_read),
        cmocka_unit_test(unread_answers_are_counted_separately),
        cmocka_unit_test(messages_of_a_stream_count_for_its_budget_until_they_are_dropped),
        cmocka_unit_test(messages_kept_for_replay_are_dropped_first_when_the_budget_is_full),
        cmocka_unit_test(an_answer_without_an_attached_caller_is_dropped_when_the_budget_is_full),
        cmocka_unit_test(a_caller_that_is_behind_is_disconnected_when_the_budget_is_full),
        cmocka_unit_test(an_answer_with_its_own_hold_counts_once),
        cmocka_unit_test(a_stream_lives_until_its_last_reference_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
