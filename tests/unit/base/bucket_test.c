// Tests token buckets: their arithmetic and the bound of their table.
#include "base/bucket.h"
#include "unit.h"

static struct bucket *hold(struct bucket_table *table, const char *key, const struct bucket_rate *rate, int64_t now)
{
    return bucket_hold(table, span_of(key), rate, now);
}

// Takes a token if there is one and returns 0, or returns how long to wait. The slot of the bucket is released.
static int64_t take(struct bucket_table *table, const char *key, const struct bucket_rate *rate, int64_t now)
{
    struct bucket *bucket = hold(table, key, rate, now);
    assert_non_null(bucket);
    int64_t wait = bucket_wait(bucket, now);
    if (!wait)
        bucket_take(bucket);
    bucket_leave(bucket);
    return wait;
}

// The expected wait at each time, in milliseconds; 0: the token was taken. A negative time ends the list.
struct step {
    int64_t now, wait;
};
#define END   \
    {         \
        -1, 0 \
    }

// clang-format off
static const struct step burst_then_pace[] = {
    {0, 0}, {0, 0}, {0, 0}, {0, 1000}, {1, 999}, {999, 1}, {1000, 0}, {1000, 1000}, {2500, 0}, {2500, 500}, {3000, 0},
    {9000, 0}, {9000, 0}, {9000, 0}, {9000, 1000}, END};
static const struct step seven_a_minute[] = {
    {0, 0}, {0, 8572}, {8571, 1}, {8572, 0}, {8572, 8572}, {17143, 1}, {17144, 0}, END};
static const struct step many_a_millisecond[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, END};
static const struct step one_a_day[] = {
    {0, 0}, {0, 86400000}, {86399999, 1}, {86400000, 0}, {INT64_MAX / 2, 0}, {INT64_MAX, 0}, END};
static const struct step a_clock_that_stands[] = {{5000, 0}, {5000, 0}, {4000, 1000}, {5000, 1000}, {6000, 0}, END};
static const struct step no_rate[] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, END};

static const struct {
    const char *name;
    struct bucket_rate rate;
    const struct step *steps;
} paces[] = {
    {"a burst, then the rate",           {60, 60000, 3},          burst_then_pace},
    {"7 in 60 s, to the millisecond",    {7, 60000, 1},           seven_a_minute},
    {"more calls than milliseconds",     {1000000, 1000, 1},      many_a_millisecond},
    {"1 a day, up to the largest time",  {1, 86400000, 1},        one_a_day},
    {"a clock that stands or goes back", {1, 1000, 2},            a_clock_that_stands},
    {"no limit",                         {0, 60000, 0},           no_rate},
};
// clang-format on

static void a_bucket_refills_at_its_rate(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(paces); i++) {
        struct bucket_table table;
        bucket_table_init(&table, 10);
        struct bucket *bucket = hold(&table, "k", &paces[i].rate, paces[i].steps[0].now);
        for (const struct step *step = paces[i].steps; step->now >= 0; step++) {
            char label[128];
            int64_t wait = bucket_wait(bucket, step->now);
            snprintf(label, sizeof label, "%s: at %lld got %lld", paces[i].name, (long long)step->now, (long long)wait);
            assert_row(wait == step->wait, label);
            if (!wait)
                bucket_take(bucket);
        }
        bucket_leave(bucket);
        bucket_table_release(&table);
    }
}

static void idle_buckets_are_dropped_and_spent_ones_kept(void **state)
{
    (void)state;
    static const struct bucket_rate rate = {2, 1000, 2};
    struct bucket_table table;
    char key[16];
    bucket_table_init(&table, 1000);
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_int_equal(take(&table, key, &rate, 0), 0);
    }
    assert_int_equal(table.buckets.count, 100);
    for (int i = 0; i < 100; i++) {  // later, when all earlier buckets are full again
        snprintf(key, sizeof key, "later %d", i);
        assert_int_equal(take(&table, key, &rate, 500), 0);
    }
    assert_int_equal(table.buckets.count, 100);
    assert_null(bucket_find(&table, SPAN("0")));
    assert_non_null(bucket_find(&table, SPAN("later 0")));
    bucket_table_release(&table);
}

static void a_full_table_drops_its_oldest_bucket_that_is_not_held(void **state)
{
    (void)state;
    static const struct bucket_rate rate = {1, 1000000, 1};
    struct bucket_table table;
    bucket_table_init(&table, 3);
    struct bucket *held = hold(&table, "held", &rate, 0);
    assert_int_equal(take(&table, "a", &rate, 0), 0);
    assert_int_equal(take(&table, "b", &rate, 0), 0);
    assert_true(take(&table, "a", &rate, 1) > 0);  // so b is the least recently used
    assert_int_equal(take(&table, "c", &rate, 2), 0);
    assert_int_equal(table.buckets.count, 3);
    assert_null(bucket_find(&table, SPAN("b")));
    assert_non_null(bucket_find(&table, SPAN("a")));
    struct bucket *two = hold(&table, "a", &rate, 3), *three = hold(&table, "c", &rate, 3);
    assert_null(hold(&table, "d", &rate, 3));
    assert_ptr_equal(bucket_find(&table, SPAN("held")), held);
    bucket_leave(two);
    struct bucket *four = hold(&table, "d", &rate, 3);
    assert_non_null(four);
    assert_int_equal(table.buckets.count, 3);
    bucket_leave(three);
    bucket_leave(four);
    bucket_leave(held);
    bucket_table_release(&table);
}

static void an_empty_key_has_its_own_bucket(void **state)
{
    (void)state;
    static const struct bucket_rate rate = {1, 1000, 1};
    struct bucket_table table;
    bucket_table_init(&table, 10);
    struct bucket *bucket = bucket_hold(&table, (struct span){0}, &rate, 0);
    assert_non_null(bucket);
    bucket_leave(bucket);
    assert_ptr_equal(bucket_find(&table, (struct span){0}), bucket);
    bucket_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_refills_at_its_rate),
        cmocka_unit_test(idle_buckets_are_dropped_and_spent_ones_kept),
        cmocka_unit_test(an_empty_key_has_its_own_bucket),
        cmocka_unit_test(a_full_table_drops_its_oldest_bucket_that_is_not_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
