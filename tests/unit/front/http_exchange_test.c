// Tests the states of an exchange: the valid transitions, and the abort on transitions that would answer the caller twice.
#include "face.h"
#include "unit.h"

static struct http_exchange through(const enum http_exchange_state *states, size_t count)
{
    struct http_exchange exchange = {0};
    for (size_t i = 0; i < count; i++)
        http_exchange_set_state(&exchange, states[i]);
    return exchange;
}

#define THROUGH(...) \
    through((const enum http_exchange_state[]){__VA_ARGS__}, COUNT(((const enum http_exchange_state[]){__VA_ARGS__})))

static void an_exchange_is_answered_once_with_or_without_its_body(void **state)
{
    (void)state;
    assert_int_equal(THROUGH(EXCHANGE_ANSWERED).state, EXCHANGE_ANSWERED);
    assert_int_equal(THROUGH(EXCHANGE_SKIPPING, EXCHANGE_ANSWERED).state, EXCHANGE_ANSWERED);
    assert_int_equal(THROUGH(EXCHANGE_WAITING, EXCHANGE_ANSWERED).state, EXCHANGE_ANSWERED);
    assert_int_equal(THROUGH(EXCHANGE_WAITING, EXCHANGE_STREAMING).state, EXCHANGE_STREAMING);
}

static void answered_twice(void) { (void)THROUGH(EXCHANGE_WAITING, EXCHANGE_ANSWERED, EXCHANGE_ANSWERED); }
static void answered_on_a_stream(void) { (void)THROUGH(EXCHANGE_WAITING, EXCHANGE_STREAMING, EXCHANGE_ANSWERED); }
static void handed_on_after_a_refusal(void) { (void)THROUGH(EXCHANGE_SKIPPING, EXCHANGE_WAITING); }
static void streamed_without_a_body(void) { (void)THROUGH(EXCHANGE_STREAMING); }

static void an_exchange_that_would_be_answered_twice_ends_the_process(void **state)
{
    (void)state;
    assert_aborts(answered_twice);
    assert_aborts(answered_on_a_stream);
    assert_aborts(handed_on_after_a_refusal);
    assert_aborts(streamed_without_a_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exchange_is_answered_once_with_or_without_its_body),
        cmocka_unit_test(an_exchange_that_would_be_answered_twice_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
