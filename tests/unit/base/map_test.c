// Tests the hash map against a plain array: thousands of keys, replacements, removals, walking.
#include "base/map.h"
#include "unit.h"

#define KEYS 5000

static char names[KEYS][40];
static int values[KEYS];

static struct span name_of(size_t i)
{
    // Short keys are stored in the slot, and long ones are allocated.
    int len = snprintf(names[i], sizeof names[i], i % 2 ? "%zu" : "a key beyond sixteen bytes %zu", i);
    return span_make(names[i], (size_t)len);
}

static void an_empty_map_has_no_entries(void **state)
{
    (void)state;
    struct map map = {0};
    size_t at = 0;
    void *value;
    assert_null(map_find(&map, SPAN("a")));
    assert_null(map_remove(&map, SPAN("a")));
    assert_false(map_next(&map, &at, NULL, &value));
    map_release(&map);
}

static void a_map_adds_replaces_and_removes_entries(void **state)
{
    (void)state;
    int a = 0, b = 0;
    struct map map = {0};
    assert_null(map_put(&map, SPAN("key"), &a));
    assert_ptr_equal(map_put(&map, SPAN("key"), &b), &a);
    assert_int_equal(map.count, 1);
    assert_ptr_equal(map_find(&map, SPAN("key")), &b);
    assert_null(map_find(&map, SPAN("ke")));
    assert_null(map_find(&map, SPAN("key\0")));
    assert_null(map_find(&map, SPAN("KEY")));
    assert_ptr_equal(map_remove(&map, SPAN("key")), &b);
    assert_null(map_remove(&map, SPAN("key")));
    assert_int_equal(map.count, 0);
    map_release(&map);
}

static void map_keys_are_bytes_and_are_copied(void **state)
{
    (void)state;
    int v[5];
    struct map map = {0};
    char key[] = "0123456789abcdefg";
    uint64_t id = 42;
    assert_null(map_put(&map, span_of(key), &v[0]));
    assert_null(map_put(&map, span_make(key, 16), &v[1]));
    assert_null(map_put(&map, SPAN(""), &v[2]));
    assert_null(map_put(&map, SPAN("\0"), &v[3]));
    assert_null(map_put(&map, map_key_u64(&id), &v[4]));
    memset(key, 'x', sizeof key);
    assert_ptr_equal(map_find(&map, SPAN("0123456789abcdefg")), &v[0]);
    assert_ptr_equal(map_find(&map, SPAN("0123456789abcdef")), &v[1]);
    assert_ptr_equal(map_find(&map, (struct span){NULL, 0}), &v[2]);
    assert_ptr_equal(map_find(&map, SPAN("\0")), &v[3]);
    uint64_t same = 42, other = 43;
    assert_ptr_equal(map_find(&map, map_key_u64(&same)), &v[4]);
    assert_null(map_find(&map, map_key_u64(&other)));
    map_release(&map);
}

static void a_map_handles_thousands_of_keys_that_come_and_go(void **state)
{
    (void)state;
    struct map map = {0};
    for (size_t i = 0; i < KEYS; i++)
        assert_null(map_put(&map, name_of(i), &values[i]));
    assert_int_equal(map.count, KEYS);
    for (size_t i = 0; i < KEYS; i++)
        if (i % 3 != 0)
            assert_ptr_equal(map_remove(&map, name_of(i)), &values[i]);
    for (size_t i = 0; i < KEYS; i++)
        assert_ptr_equal(map_find(&map, name_of(i)), i % 3 ? NULL : &values[i]);
    for (size_t i = 0; i < KEYS; i++)
        assert_ptr_equal(map_put(&map, name_of(i), &values[i]), i % 3 ? NULL : &values[i]);
    assert_int_equal(map.count, KEYS);

    static int seen[KEYS];
    struct span key;
    void *value;
    for (size_t at = 0; map_next(&map, &at, &key, &value);) {
        size_t i = (size_t)((int *)value - values);
        assert_span(key, name_of(i), "walked key");
        seen[i]++;
    }
    for (size_t i = 0; i < KEYS; i++)
        assert_int_equal(seen[i], 1);
    map_release(&map);
}

static void a_map_does_not_grow_under_turnover(void **state)
{
    (void)state;
    struct map map = {0};
    for (uint64_t id = 0; id < 200000; id++) {
        assert_null(map_put(&map, map_key_u64(&id), &values[0]));
        uint64_t old = id - 8;
        if (id >= 8)
            assert_ptr_equal(map_remove(&map, map_key_u64(&old)), &values[0]);
    }
    assert_int_equal(map.count, 8);
    assert_in_range(map.room, 16, 256);
    map_release(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_has_no_entries),
        cmocka_unit_test(a_map_adds_replaces_and_removes_entries),
        cmocka_unit_test(map_keys_are_bytes_and_are_copied),
        cmocka_unit_test(a_map_handles_thousands_of_keys_that_come_and_go),
        cmocka_unit_test(a_map_does_not_grow_under_turnover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
