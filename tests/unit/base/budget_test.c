// Tests byte budgets: when a hold may grow, when it waits, moving holds, and that a random mix of answers never exceeds a bound
// and always ends.
#include "budget.h"
#include "unit.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static struct budget *make(struct budget *parent, size_t bound, size_t reserve)
{
    return budget_new(parent, &(struct budget_spec){"limits.test", bound, reserve});
}

static bool grow(struct budget_hold *hold, size_t more) { return budget_grow(hold, more, NULL); }

static unsigned served;
static void on_room(struct budget_hold *hold)
{
    (void)hold;
    served++;
}

// ---- growing --------------------------------------------------------------------------------

static void a_hold_that_grows_leaves_the_reserve_and_an_eighth_for_small_holds(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        size_t bound, used, own, more;
        bool room;
    } rows[] = {
        {"nothing more", 16 * MIB, 8 * MIB, 0, 0, true},
        {"small", 16 * MIB, 0, 0, 1, true},
        {"large, up to seven eighths of the bytes above the reserve", 16 * MIB, 0, 0, 7 * MIB, true},
        {"one byte above that", 16 * MIB, 0, 0, 7 * MIB + 1, false},
        {"small, in the last eighth", 16 * MIB, 7 * MIB, 0, 64 * KIB, true},
        {"not small any more", 16 * MIB, 7 * MIB, 0, 64 * KIB + 1, false},
        {"not small with its earlier bytes", 16 * MIB, 7 * MIB, 64 * KIB, 1, false},
        {"small, in the reserve", 16 * MIB, 8 * MIB, 0, 1, false},
        {"no bound", 0, 100 * MIB, 0, 1000 * MIB, true},
        {"so much that sums would overflow", 16 * MIB, 1, 0, SIZE_MAX, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct budget *budget = make(NULL, rows[i].bound, 8 * MIB);
        struct budget_hold others[256] = {0}, hold = {0};
        const struct budget *full = NULL;
        size_t left = rows[i].used;
        for (size_t k = 0; left; k++) {  // small holds may fill all bytes above the reserve
            size_t part = left > 64 * KIB && rows[i].bound ? 64 * KIB : left;
            budget_open(&others[k], budget);
            assert_true(grow(&others[k], part));
            left -= part;
        }
        budget_open(&hold, budget);
        assert_row(grow(&hold, rows[i].own), rows[i].label);
        assert_row(budget_grow(&hold, rows[i].more, &full) == rows[i].room, rows[i].label);
        assert_row(rows[i].room || full == budget, rows[i].label);
        assert_row(hold.bytes == rows[i].own + (rows[i].room ? rows[i].more : 0), rows[i].label);
        for (size_t k = 0; k < COUNT(others); k++)
            budget_close(&others[k]);
        budget_close(&hold);
        assert_int_equal(budget->used, 0);
        budget_unref(budget);
    }
}

static void a_hold_that_grows_counts_at_every_level_or_at_none(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 30 * KIB, 10 * KIB), *one = make(all, 100 * KIB, 10 * KIB),
                  *other = make(all, 15 * KIB, 10 * KIB);
    struct budget_hold a = {0}, b = {0};
    const struct budget *full;
    budget_open(&a, one);
    budget_open(&b, other);
    assert_false(budget_grow(&a, 21 * KIB, &full));
    assert_ptr_equal(full, all);
    assert_int_equal(one->used, 0);
    assert_false(budget_grow(&b, 6 * KIB, &full));
    assert_ptr_equal(full, other);
    assert_int_equal(all->used, 0);
    assert_true(grow(&a, 17 * KIB));
    assert_false(budget_grow(&b, 4 * KIB, &full));
    assert_ptr_equal(full, all);
    budget_close(&a);
    assert_true(grow(&b, 4 * KIB));
    budget_close(&b);
    budget_unref(one);
    budget_unref(other);
    budget_unref(all);
}

static void a_hold_without_a_budget_is_not_counted(void **state)
{
    (void)state;
    struct budget_hold hold = {0}, other = {0};
    assert_true(grow(&hold, SIZE_MAX));
    assert_true(budget_await(&hold, SIZE_MAX, NULL));
    budget_shrink(&hold, 1);
    budget_hand_over(&hold, &other);
    budget_close(&hold);
}

// ---- moving ---------------------------------------------------------------------------------

static void a_hold_moves_with_its_bytes(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 10), *strangers = make(all, 50, 10), *one = make(all, 30, 10);
    struct budget_hold hold = {0}, kept = {0};
    const struct budget *full;
    budget_open(&hold, strangers);
    assert_true(grow(&hold, 21));
    assert_false(budget_move(&hold, one, false, &full));
    assert_ptr_equal(full, one);
    assert_int_equal(strangers->used, 21);
    budget_shrink(&hold, 1);
    assert_true(budget_move(&hold, one, false, &full));
    assert_int_equal(strangers->used, 0);
    assert_int_equal(one->used, 20);
    assert_int_equal(all->used, 20);
    budget_open(&kept, strangers);
    budget_hand_over(&hold, &kept);
    assert_null(hold.budget);
    assert_int_equal(kept.bytes, 20);
    assert_int_equal(strangers->used, 20);
    assert_int_equal(one->used, 0);
    budget_close(&kept);
    budget_unref(one);
    budget_unref(strangers);
    budget_unref(all);
}

static void an_answer_moves_into_a_free_reserve(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 200, 0), *one = make(all, 60, 50);
    struct budget_hold a = {0}, b = {0};
    const struct budget *full;
    budget_open(&a, all);
    budget_open(&b, all);
    assert_true(grow(&a, 50) && grow(&b, 11));
    assert_false(budget_move(&a, one, false, &full));
    assert_null(one->favoured);
    assert_true(budget_move(&a, one, true, &full));
    assert_ptr_equal(one->favoured, &a);
    assert_false(budget_move(&b, one, true, &full));
    assert_ptr_equal(full, one);
    budget_shrink(&b, 1);
    assert_true(budget_move(&b, one, true, &full));
    assert_int_equal(one->used, 60);
    assert_int_equal(all->used, 60);
    budget_close(&a);
    budget_close(&b);
    budget_unref(one);
    budget_unref(all);
}

static void bytes_in_memory_are_counted_even_above_a_bound(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 10), *one = make(all, 30, 10);
    struct budget_hold pipe = {0}, call = {0};
    budget_open(&pipe, all);
    budget_open(&call, one);
    assert_true(grow(&pipe, 50));
    budget_hand_over(&pipe, &call);
    assert_int_equal(one->used, 50);
    assert_int_equal(all->used, 50);
    assert_false(grow(&call, 1));
    budget_close(&call);
    budget_unref(one);
    budget_unref(all);
}

static void drop_history(struct budget_hold *hold) { budget_shrink(hold, hold->bytes); }

static void spare_bytes_of_the_same_budget_are_dropped_first(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 0), *one = make(all, 60, 0), *other = make(all, 60, 0);
    struct budget_hold mine = {0}, older = {0}, others = {0}, hold = {0};
    budget_open(&older, one);
    budget_open(&mine, one);
    budget_open(&others, other);
    budget_open(&hold, one);
    assert_true(grow(&older, 20) && grow(&mine, 20) && grow(&others, 60));
    budget_spare(&older, drop_history);
    budget_spare(&mine, drop_history);
    budget_spare(&others, drop_history);
    assert_true(grow(&hold, 20));
    assert_int_equal(older.bytes, 0);
    assert_int_equal(mine.bytes, 20);
    assert_false(grow(&hold, 21));
    assert_int_equal(mine.bytes, 0);
    assert_int_equal(others.bytes, 60);
    budget_close(&mine);
    budget_close(&older);
    budget_close(&others);
    budget_close(&hold);
    budget_unref(one);
    budget_unref(other);
    budget_unref(all);
}

static void an_answer_that_moves_replaces_spare_bytes_in_the_new_budget(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 0, 0), *one = make(all, 100, 60);
    struct budget_hold kept = {0}, small = {0}, hold = {0};
    const struct budget *full;
    budget_open(&kept, one);
    budget_open(&small, one);
    budget_open(&hold, all);
    assert_true(budget_await(&kept, 60, NULL) && grow(&small, 35) && grow(&hold, 60));
    budget_step_back(&kept);
    assert_false(budget_move(&hold, one, true, &full));
    assert_ptr_equal(full, one);
    budget_spare(&kept, drop_history);
    assert_true(budget_move(&hold, one, true, &full));
    assert_int_equal(one->used, 95);
    budget_close(&kept);
    budget_close(&small);
    budget_close(&hold);
    budget_unref(one);
    budget_unref(all);
}

static void a_hold_without_bytes_has_no_reserve(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 60);
    struct budget_hold hold = {.on_room = on_room}, other = {.on_room = on_room};
    budget_open(&hold, all);
    budget_open(&other, all);
    assert_true(budget_await(&hold, 50, NULL));
    budget_shrink(&hold, 50);
    assert_true(budget_await(&other, 60, NULL));
    budget_count(&hold, 70);
    assert_int_equal(all->used, 130);
    budget_close(&hold);
    budget_close(&other);
    budget_unref(all);
}

// ---- waiting --------------------------------------------------------------------------------

static void only_one_hold_at_a_time_uses_the_reserve(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 60);
    struct budget_hold first = {.on_room = on_room}, second = {.on_room = on_room}, small = {0};
    served = 0;
    budget_open(&first, all);
    budget_open(&second, all);
    budget_open(&small, all);
    assert_true(budget_await(&first, 30, NULL) && budget_await(&second, 10, NULL));
    assert_false(grow(&small, 1));
    assert_true(budget_await(&first, 10, NULL));  // now its bytes are counted in the reserve,
    assert_true(grow(&small, 5));                 // so that other holds may grow
    assert_true(budget_await(&second, 25, NULL));
    assert_false(budget_await(&second, 20, NULL));
    assert_true(budget_await(&first, 20, NULL));
    assert_int_equal(all->used, 100);
    budget_serve(all);
    assert_int_equal(served, 0);
    budget_close(&first);
    budget_serve(all);
    assert_int_equal(served, 1);
    assert_int_equal(second.bytes, 55);
    budget_close(&second);
    budget_close(&small);
    budget_unref(all);
}

static void a_hold_that_steps_back_frees_the_reserve_for_the_next_hold(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 60);
    struct budget_hold first = {.on_room = on_room}, second = {.on_room = on_room};
    served = 0;
    budget_open(&first, all);
    budget_open(&second, all);
    assert_true(budget_await(&first, 41, NULL));
    assert_true(budget_await(&second, 40, NULL));
    assert_false(budget_await(&second, 10, NULL));
    budget_step_back(&first);
    budget_serve(all);
    assert_int_equal(served, 1);
    assert_int_equal(all->used, 91);
    budget_close(&first);
    budget_close(&second);
    budget_unref(all);
}

// A hold gets the reserve of a parent only if it has the reserve of its own budget. Otherwise two holds could each have one
// reserve and wait for the other for ever.
static void a_hold_takes_the_reserve_of_its_own_budget_before_that_of_the_parent(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 60), *one = make(all, 80, 60);
    struct budget_hold a = {.on_room = on_room}, b = {.on_room = on_room}, rest = {0};
    served = 0;
    budget_open(&a, one);
    budget_open(&b, one);
    budget_open(&rest, all);
    assert_true(budget_await(&a, 21, NULL));  // it has the reserve of `one`
    assert_true(grow(&rest, 19));
    assert_false(budget_await(&b, 1, NULL));  // `all` is full, and its reserve is not for b
    assert_true(budget_await(&a, 39, NULL));
    budget_close(&a);
    budget_serve(all);
    assert_int_equal(served, 1);
    budget_close(&b);
    budget_close(&rest);
    budget_unref(one);
    budget_unref(all);
}

// An answer on a connection that callers share counts for their tenant, so the spare bytes of no identity are its own.
static void a_hold_whose_turn_it_is_drops_spare_bytes_instead_of_waiting(void **state)
{
    (void)state;
    struct budget *all = make(NULL, 100, 60), *tenants[2], *identities[4];
    struct budget_hold kept[4] = {0}, hold = {.on_room = on_room}, next = {.on_room = on_room};
    const struct budget *full;
    served = 0;
    for (size_t i = 0; i < 2; i++)
        tenants[i] = make(all, i ? 70 : 0, 60);
    for (size_t i = 0; i < 4; i++) {
        identities[i] = make(tenants[i / 2], 0, 0);
        budget_open(&kept[i], identities[i]);
        budget_count(&kept[i], 20);
    }
    budget_open(&hold, tenants[1]);
    budget_open(&next, tenants[1]);
    assert_false(budget_await(&hold, 40, &full));
    assert_ptr_equal(full, all);
    assert_false(budget_await(&next, 10, &full));
    budget_spare(&kept[2], drop_history);
    budget_spare(&kept[0], drop_history);
    budget_spare(&kept[1], drop_history);
    budget_serve(all);
    assert_int_equal(served, 1);  // `next` drops no spare bytes, because it is not its turn
    assert_int_equal(hold.bytes, 40);
    assert_int_equal(kept[0].bytes + kept[1].bytes + kept[2].bytes, 40);
    // A full tenant drops spare bytes of its own identities.
    budget_shrink(&hold, 40);
    budget_close(&next);
    budget_close(&kept[1]);
    assert_int_equal(kept[0].bytes, 20);
    budget_spare(&kept[3], drop_history);
    assert_true(budget_await(&hold, 60, &full));
    assert_int_equal(tenants[1]->used, 60);
    assert_int_equal(kept[0].bytes, 20);
    budget_close(&hold);
    for (size_t i = 0; i < 4; i++) {
        budget_close(&kept[i]);
        budget_unref(identities[i]);
    }
    for (size_t i = 0; i < 2; i++)
        budget_unref(tenants[i]);
    assert_int_equal(all->used, 0);
    budget_unref(all);
}

// ---- a random mix ---------------------------------------------------------------------------

enum { IDENTITIES = 6, TENANTS = 2, CALLS = 60, ROUNDS = 400, MESSAGE = 200 * 1024, BLOCK = 16 * 1024 };

enum step { STEP_BODY, STEP_READ, STEP_WAIT, STEP_UNREAD, STEP_OVER };

struct answer {
    struct budget_hold body, read, unread;
    enum step step;
    size_t body_size, size;
    unsigned identity;
};

static uint64_t seed;
static size_t random_below(size_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(seed >> 33) % n;
}

static void on_answer_room(struct budget_hold *hold) { ((struct answer *)hold->arg)->step = STEP_READ; }

static void walk(struct answer *call)
{
    switch (call->step) {
    case STEP_BODY:
        if (grow(&call->body, call->body_size))
            call->step = STEP_READ;  // else the caller retries
        return;
    case STEP_READ: {
        size_t more = call->size - call->read.bytes < BLOCK ? call->size - call->read.bytes : BLOCK;
        if (more == 0) {
            budget_hand_over(&call->read, &call->unread);
            call->step = STEP_UNREAD;
        } else if (!budget_await(&call->read, more, NULL)) {
            call->step = STEP_WAIT;
        }
        return;
    }
    case STEP_UNREAD:
        if (random_below(4) == 0) {
            budget_close(&call->unread);
            budget_close(&call->body);
            call->step = STEP_OVER;
        }
        return;
    case STEP_WAIT:
    case STEP_OVER: return;
    }
}

static void abandon(struct answer *call)
{
    budget_close(&call->body);
    budget_close(&call->read);
    budget_close(&call->unread);
    call->step = STEP_OVER;
}

static unsigned freed;
static void on_unused(struct budget *budget)
{
    (void)budget;
    freed++;
}

static void random_holds_do_not_exceed_a_bound_or_wait_forever(void **state)
{
    (void)state;
    for (seed = 1; seed <= 40; seed += 1) {
        uint64_t run = seed;
        struct budget *all = make(NULL, 700 * KIB, MESSAGE), *tenants[TENANTS], *identities[IDENTITIES];
        struct answer calls[CALLS] = {0};
        freed = 0;
        for (size_t i = 0; i < TENANTS; i++)
            tenants[i] = make(all, i ? 500 * KIB : 0, MESSAGE);
        for (size_t i = 0; i < IDENTITIES; i++) {
            identities[i] = make(tenants[i % TENANTS], i % 3 ? 400 * KIB : 0, MESSAGE);
            identities[i]->on_unused = on_unused;
        }
        for (size_t i = 0; i < CALLS; i++) {
            struct answer *call = &calls[i];
            call->identity = (unsigned)random_below(IDENTITIES);
            call->body_size = random_below(random_below(3) ? 100 : 60 * KIB);
            call->size = random_below(random_below(3) ? MESSAGE : 500);
            budget_open(&call->body, identities[call->identity]);
            // Some answers arrive on a shared pipe and count for the tenant until their call is known.
            budget_open(&call->read, random_below(3) ? identities[call->identity] : tenants[call->identity % TENANTS]);
            budget_open(&call->unread, identities[call->identity]);
            call->read.on_room = on_answer_room;
            call->read.arg = call;
        }
        size_t left = CALLS;
        for (size_t round = 0; left && round < ROUNDS * CALLS; round++) {
            struct answer *call = &calls[random_below(CALLS)];
            if (random_below(500) == 0)
                abandon(call);
            walk(call);
            budget_serve(all);
            assert_true(all->used <= all->bound);
            assert_true(tenants[1]->used <= tenants[1]->bound);
            left = 0;
            for (size_t i = 0; i < CALLS; i++)
                left += calls[i].step != STEP_OVER;
        }
        assert_row(left == 0, "a call was not answered");
        assert_int_equal(all->used, 0);
        assert_true(list_empty(&all->waiting));
        for (size_t i = 0; i < IDENTITIES; i++)
            budget_unref(identities[i]);
        assert_int_equal(freed, IDENTITIES);
        for (size_t i = 0; i < TENANTS; i++)
            budget_unref(tenants[i]);
        budget_unref(all);
        seed = run;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hold_that_grows_leaves_the_reserve_and_an_eighth_for_small_holds),
        cmocka_unit_test(a_hold_that_grows_counts_at_every_level_or_at_none),
        cmocka_unit_test(a_hold_without_a_budget_is_not_counted),
        cmocka_unit_test(a_hold_moves_with_its_bytes),
        cmocka_unit_test(an_answer_moves_into_a_free_reserve),
        cmocka_unit_test(bytes_in_memory_are_counted_even_above_a_bound),
        cmocka_unit_test(spare_bytes_of_the_same_budget_are_dropped_first),
        cmocka_unit_test(an_answer_that_moves_replaces_spare_bytes_in_the_new_budget),
        cmocka_unit_test(a_hold_without_bytes_has_no_reserve),
        cmocka_unit_test(only_one_hold_at_a_time_uses_the_reserve),
        cmocka_unit_test(a_hold_that_steps_back_frees_the_reserve_for_the_next_hold),
        cmocka_unit_test(a_hold_takes_the_reserve_of_its_own_budget_before_that_of_the_parent),
        cmocka_unit_test(a_hold_whose_turn_it_is_drops_spare_bytes_instead_of_waiting),
        cmocka_unit_test(random_holds_do_not_exceed_a_bound_or_wait_forever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
