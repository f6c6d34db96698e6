// Tests the object of a call: its states only advance, and its answer goes to the connection, the stream or the batch.
#include "base/log.h"
#include "room.h"
#include "unit.h"

static struct fixture {
    struct gate gate;
    struct call *call;
    struct arrival arrival;
    int answers, streams, runs;
    int status;
    struct buf text;
    bool ended;  // the stream had ended when on_stream() got it
} f;

static void on_answer(struct arrival *arrival, struct answer *answer)
{
    (void)arrival;
    f.answers++;
    f.status = answer->status;
    buf_put_span(&f.text, buf_span(&answer->body));
    buf_release(&answer->body);
}

static void on_stream(struct arrival *arrival, struct stream *stream, const char *session_id)
{
    (void)arrival;
    (void)session_id;
    f.streams++;
    f.ended = stream_over(stream);
}

static void on_run(struct call *call)
{
    (void)call;
    f.runs++;
}

static const struct arrival_ops ops = {on_answer, on_stream};
static const struct call_runner runner = {.run = on_run};

static int set_up(void **state)
{
    (void)state;
    memset(&f, 0, sizeof f);
    f.gate.runner = &runner;
    f.call = call_new(&f.gate);
    f.call->arrival = &f.arrival;
    f.call->message.kind = MESSAGE_REQUEST;
    f.arrival = (struct arrival){.ops = &ops, .call = f.call};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    call_free(f.call);
    buf_release(&f.text);
    arena_store_release(&f.gate.arenas);
    return 0;
}

// ---- states ---------------------------------------------------------------------------------

static void back_to_open(void)
{
    call_set_state(f.call, CALL_ENDING);
    call_set_state(f.call, CALL_OPEN);
}

static void ending_again(void)
{
    call_set_state(f.call, CALL_ENDING);
    call_set_state(f.call, CALL_ENDING);
}

static void dispatched_again(void)
{
    call_set_state(f.call, CALL_DISPATCHED);
    call_set_state(f.call, CALL_DISPATCHED);
}

static void dispatched_after_an_offer(void)
{
    call_set_state(f.call, CALL_OFFERED);
    call_set_state(f.call, CALL_DISPATCHED);
}

static void recorded_again(void)
{
    call_set_state(f.call, CALL_RECORDED);
    call_set_state(f.call, CALL_RECORDED);
}

static void back_to_an_earlier_phase(void)
{
    call_set_phase(f.call, 3);
    call_set_phase(f.call, 2);
}

static void the_same_phase_again(void)
{
    call_set_phase(f.call, 3);
    call_set_phase(f.call, 3);
}

static void split_at_once(void) { call_set_batch(f.call, BATCH_SPLIT); }

static void split_again(void)
{
    call_set_batch(f.call, BATCH_WHOLE);
    call_set_batch(f.call, BATCH_SPLIT);
    call_set_batch(f.call, BATCH_SPLIT);
}

static void the_state_of_a_call_only_advances(void **state)
{
    (void)state;
    assert_aborts(back_to_open);
    assert_aborts(ending_again);
    assert_aborts(recorded_again);
    assert_aborts(dispatched_again);
    assert_aborts(dispatched_after_an_offer);
    assert_true(call_is_open(f.call));
    call_set_state(f.call, CALL_DISPATCHED);
    call_set_state(f.call, CALL_OFFERED);
    assert_true(call_is_open(f.call));  // until it is ending
    call_set_state(f.call, CALL_ENDING);
    assert_false(call_is_open(f.call));
    call_set_state(f.call, CALL_RECORDED);
}

static void the_phase_of_a_call_only_advances(void **state)
{
    (void)state;
    assert_aborts(back_to_an_earlier_phase);
    assert_aborts(the_same_phase_again);
    call_set_phase(f.call, 2);
    call_set_phase(f.call, 5);
    assert_int_equal(f.call->phase, 5);
}

static void a_batch_is_split_only_once(void **state)
{
    (void)state;
    assert_aborts(split_at_once);
    assert_aborts(split_again);
    call_set_batch(f.call, BATCH_WHOLE);
    call_set_batch(f.call, BATCH_SPLIT);
}

// ---- answers --------------------------------------------------------------------------------

static void assert_delivered(int status, const char *text)
{
    call_deliver(f.call);
    assert_int_equal(f.answers, 1);
    assert_int_equal(f.streams, 0);
    assert_int_equal(f.status, status);
    assert_string_equal(buf_text(&f.text), text);
    assert_null(f.arrival.call);  // the call and its arrival have no pointers to each other any more
    assert_null(f.call->arrival);
}

static void an_answer_is_sent_on_the_connection_of_its_caller(void **state)
{
    (void)state;
    buf_put_text(&f.call->text, "{}");
    assert_delivered(200, "{}");
}

static void a_message_without_an_answer_gets_status_202(void **state)
{
    (void)state;
    f.call->message.kind = MESSAGE_NOTIFICATION;
    assert_delivered(202, "");
}

static void an_error_has_the_status_of_its_code_unless_the_message_is_a_notification(void **state)
{
    (void)state;
    (void)err_set(&f.call->err, ERR_UNKNOWN_SESSION, "x");
    buf_put_text(&f.call->text, "{}");
    assert_delivered(404, "{}");
}

static void a_notification_that_failed_in_band_is_accepted(void **state)
{
    (void)state;
    f.call->message.kind = MESSAGE_NOTIFICATION;
    (void)err_set(&f.call->err, ERR_INVALID_PARAMS, "x");
    assert_int_equal(err_http_status(ERR_INVALID_PARAMS), 200);
    assert_delivered(202, "");
}

static void a_cancelled_call_gets_an_ended_stream(void **state)
{
    (void)state;
    f.call->silent = true;
    buf_put_text(&f.call->text, "{}");
    call_deliver(f.call);
    assert_int_equal(f.answers, 0);
    assert_int_equal(f.streams, 1);
    assert_true(f.ended);
}

static void an_answer_for_a_disconnected_caller_is_dropped(void **state)
{
    (void)state;
    f.call->arrival = NULL;
    buf_put_text(&f.call->text, "{}");
    call_deliver(f.call);
    assert_int_equal(f.answers + f.streams, 0);
}

static void an_answer_is_sent_on_the_stream_of_its_call(void **state)
{
    (void)state;
    struct stream_item item;
    f.call->arrival = NULL;
    f.call->stream = stream_new(1, true, &(struct stream_limits){.bytes = 100, .events = 10});
    buf_put_text(&f.call->text, "{}");
    call_deliver(f.call);
    assert_true(stream_pull(f.call->stream, &item));
    assert_span(blob_span(item.message), SPAN("{}"), "answer");
    assert_true(stream_over(f.call->stream));
}

// ---- batches --------------------------------------------------------------------------------

static void deliver_part(const char *text)
{
    struct call *part = call_new(&f.gate);
    part->parent = f.call;
    part->message.kind = MESSAGE_REQUEST;
    buf_put_text(&part->text, text);
    call_deliver(part);
    call_free(part);
}

static void answers_of_parts_are_gathered_and_the_last_one_resumes_the_batch(void **state)
{
    (void)state;
    f.call->parts_left = 3;
    deliver_part("{\"id\":1}");
    deliver_part("");  // a notification
    assert_int_equal(f.runs, 0);
    deliver_part("{\"id\":3}");
    assert_int_equal(f.runs, 1);
    struct blob *gathered = call_take_batch(f.call);
    struct buf text = {0};
    for (size_t i = 0; i < blob_count(gathered); i++)
        buf_put_span(&text, blob_part(gathered, i));
    assert_span(buf_span(&text), SPAN("[{\"id\":1},{\"id\":3}]"), "gathered");
    buf_release(&text);
    blob_unref(gathered);
}

static void answers_of_parts_are_sent_one_by_one_on_the_stream_of_the_batch(void **state)
{
    (void)state;
    struct stream_item item;
    f.call->parts_left = 2;
    f.call->stream = stream_new(1, true, &(struct stream_limits){.bytes = 100, .events = 10});
    deliver_part("{\"id\":1}");
    assert_true(stream_pull(f.call->stream, &item));
    assert_span(blob_span(item.message), SPAN("{\"id\":1}"), "first");
    deliver_part("{\"id\":2}");
    assert_true(stream_pull(f.call->stream, &item));
    assert_span(blob_span(item.message), SPAN("{\"id\":2}"), "second");
    assert_int_equal(f.runs, 1);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);  // the tests break invariants on purpose
    const struct CMUnitTest tests[] = {
        TEST(the_phase_of_a_call_only_advances),
        TEST(the_state_of_a_call_only_advances),
        TEST(a_batch_is_split_only_once),
        TEST(an_answer_is_sent_on_the_connection_of_its_caller),
        TEST(a_message_without_an_answer_gets_status_202),
        TEST(an_error_has_the_status_of_its_code_unless_the_message_is_a_notification),
        TEST(a_notification_that_failed_in_band_is_accepted),
        TEST(a_cancelled_call_gets_an_ended_stream),
        TEST(an_answer_for_a_disconnected_caller_is_dropped),
        TEST(an_answer_is_sent_on_the_stream_of_its_call),
        TEST(answers_of_parts_are_gathered_and_the_last_one_resumes_the_batch),
        TEST(answers_of_parts_are_sent_one_by_one_on_the_stream_of_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
