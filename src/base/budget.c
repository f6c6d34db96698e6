// Owns byte budgets: the bounds on holds, the order in which holds wait, and the use of the reserve.
#include "budget.h"
#include "base/check.h"
#include "base/mem.h"
#include <stdlib.h>

#define SMALL_HOLD ((size_t)64 << 10)

struct budget *budget_new(struct budget *parent, const struct budget_spec *spec)
{
    struct budget *budget = mem_new(struct budget);
    *budget = (struct budget){.parent = parent ? budget_ref(parent) : NULL,
                              .option = spec->option,
                              .bound = spec->bound,
                              .reserve = spec->reserve,
                              .refs = 1};
    list_init(&budget->spare);
    list_init(&budget->offering);
    list_init(&budget->waiting);
    return budget;
}

struct budget *budget_ref(struct budget *budget)
{
    budget->refs++;
    return budget;
}

void budget_unref(struct budget *budget)
{
    while (budget && --budget->refs == 0) {
        struct budget *parent = budget->parent;
        CHECK(budget->used == 0 && !budget->favoured);
        list_remove(&budget->node);
        if (budget->on_unused)
            budget->on_unused(budget);
        free(budget);
        budget = parent;
    }
}

// The bytes that a hold of this size may use together with the others, apart from the reserve. An eighth is open only
// to small holds, so that they can grow while large answers wait.
static size_t open_to(const struct budget *budget, size_t bytes)
{
    size_t open = budget->bound - budget->reserve;
    return bytes > SMALL_HOLD ? open - open / 8 : open;
}

static struct budget *root_of(struct budget *budget)
{
    while (budget->parent)
        budget = budget->parent;
    return budget;
}

// ---- bounds ---------------------------------------------------------------------------------

static bool fits(const struct budget *budget, const struct budget_hold *hold, size_t more)
{
    if (!budget->bound || more == 0)
        return true;
    if (budget->used > budget->bound || more > budget->bound - budget->used)
        return false;
    if (budget->favoured == hold)
        return true;
    size_t apart = budget->favoured ? budget->favoured->bytes : 0;
    size_t used = budget->used - (apart < budget->reserve ? apart : budget->reserve);
    size_t open = open_to(budget, hold->bytes + more);
    return used <= open && more <= open - used;
}

// The highest level below `end` whose bound would be exceeded. NULL: the bytes fit at every level.
static struct budget *find_full(struct budget *from, const struct budget *end, const struct budget_hold *hold,
                                size_t more)
{
    struct budget *full = NULL;
    for (struct budget *at = from; at != end; at = at->parent)
        if (!fits(at, hold, more))
            full = at;
    return full;
}

// Asks the oldest spare hold of this budget, else those of the budgets below in turn. False: no hold is spare.
static bool give_up_one(struct budget *budget)
{
    if (!list_empty(&budget->spare)) {
        struct budget_hold *spare = list_entry(budget->spare.next, struct budget_hold, node);
        list_remove(&spare->node);
        spare->on_spare(spare);
        return true;
    }
    while (!list_empty(&budget->offering)) {
        struct budget *below = list_entry(budget->offering.next, struct budget, node);
        list_remove(&below->node);
        if (list_empty(&below->spare) && list_empty(&below->offering))
            continue;
        list_append(&budget->offering, &below->node);
        if (give_up_one(below))
            return true;
    }
    return false;
}

// Like find_full(), after spare holds of the lowest level have been asked to give up bytes.
static struct budget *make_room(struct budget *from, const struct budget *end, const struct budget_hold *hold,
                                size_t more)
{
    struct budget *full;
    while ((full = find_full(from, end, hold, more)) && !list_empty(&from->spare))
        give_up_one(from);
    return full;
}

void budget_count(struct budget_hold *hold, size_t more)
{
    if (!hold->budget)
        return;
    for (struct budget *at = hold->budget; at; at = at->parent)
        at->used += more;
    hold->bytes += more;
}

static void tell_room(struct budget *root)
{
    if (!list_empty(&root->waiting) && root->on_room)
        root->on_room(root->arg);
}

void budget_set_bound(struct budget *budget, size_t bound, size_t reserve)
{
    budget->bound = bound;
    budget->reserve = reserve;
    tell_room(root_of(budget));
}

// Takes reserves from the lowest level up. So a hold that has the reserve of a level and waits for that of the next
// level waits for a hold that can proceed.
static bool take_reserves(struct budget_hold *hold, const struct budget *up_to)
{
    for (struct budget *at = hold->budget;; at = at->parent) {
        if (at->bound && !at->favoured)
            at->favoured = hold;
        if (at->bound && at->favoured != hold)
            return false;
        if (at == up_to)
            return true;
    }
}

static void leave_reserves(struct budget *from, const struct budget *end, const struct budget_hold *hold)
{
    for (; from != end; from = from->parent)
        if (from->favoured == hold)
            from->favoured = NULL;
}

// When its turn comes, a hold does not wait for bytes that others only keep: some of the reserve may have become spare.
static struct budget *try_waiting(struct budget_hold *hold, size_t more)
{
    struct budget *full = make_room(hold->budget, NULL, hold, more);
    while (full && take_reserves(hold, full)) {
        full = find_full(hold->budget, NULL, hold, more);
        if (!full || !give_up_one(full))
            break;
    }
    if (!full)
        budget_count(hold, more);
    return full;
}

void budget_serve(struct budget *root)
{
    struct list round;
    list_move_all(&round, &root->waiting);
    while (!list_empty(&round)) {
        struct budget_hold *hold = list_entry(round.next, struct budget_hold, node);
        list_remove(&hold->node);
        if (try_waiting(hold, hold->wanted)) {
            list_append(&root->waiting, &hold->node);
            continue;
        }
        hold->wanted = 0;
        hold->on_room(hold);
    }
}

// ---- holds ----------------------------------------------------------------------------------

void budget_open(struct budget_hold *hold, struct budget *budget)
{
    CHECK(!hold->budget);
    hold->budget = budget_ref(budget);
    hold->bytes = hold->wanted = 0;
}

bool budget_grow(struct budget_hold *hold, size_t more, const struct budget **full)
{
    if (!hold->budget)
        return true;
    const struct budget *none = make_room(hold->budget, NULL, hold, more);
    if (full)
        *full = none;
    if (!none)
        budget_count(hold, more);
    return !none;
}

bool budget_await(struct budget_hold *hold, size_t more, const struct budget **full)
{
    if (!hold->budget)
        return true;
    CHECK(!list_linked(&hold->node));
    const struct budget *none = try_waiting(hold, more);
    if (full)
        *full = none;
    if (!none)
        return true;
    hold->wanted = more;
    list_append(&root_of(hold->budget)->waiting, &hold->node);
    return false;
}

void budget_shrink(struct budget_hold *hold, size_t less)
{
    if (!hold->budget || less == 0)
        return;
    CHECK(less <= hold->bytes);
    for (struct budget *at = hold->budget; at; at = at->parent)
        at->used -= less;
    hold->bytes -= less;
    if (hold->bytes == 0)
        leave_reserves(hold->budget, NULL, hold);
    tell_room(root_of(hold->budget));
}

// The lowest level that is above both, or one of them.
static struct budget *shared(struct budget *one, const struct budget *other)
{
    for (; one; one = one->parent)
        for (const struct budget *at = other; at; at = at->parent)
            if (at == one)
                return one;
    return NULL;
}

// Moves the bytes of the hold from its own budget to `budget`.
static void count_for(struct budget_hold *hold, struct budget *budget)
{
    struct budget *old = hold->budget, *end = shared(old, budget);
    leave_reserves(old, end, hold);
    for (struct budget *at = old; at != end; at = at->parent)
        at->used -= hold->bytes;
    for (struct budget *at = budget; at != end; at = at->parent)
        at->used += hold->bytes;
    hold->budget = budget_ref(budget);
    tell_room(root_of(old));
    budget_unref(old);
}

bool budget_move(struct budget_hold *hold, struct budget *budget, bool reserve, const struct budget **full)
{
    if (!hold->budget || hold->budget == budget)
        return true;
    struct budget *end = shared(budget, hold->budget), *none = make_room(budget, end, hold, hold->bytes);
    for (struct budget *at = budget; none && reserve && at != end; at = at->parent)
        at->favoured = at->favoured || !at->bound ? at->favoured : hold;
    none = none ? find_full(budget, end, hold, hold->bytes) : NULL;
    if (none)
        leave_reserves(budget, end, hold);
    if (full)
        *full = none;
    if (!none)
        count_for(hold, budget);
    return !none;
}

void budget_split(struct budget_hold *from, struct budget_hold *to, size_t bytes)
{
    if (!from->budget)
        return;
    CHECK(bytes <= from->bytes);
    if (!to->budget)
        budget_open(to, from->budget);
    struct budget *end = shared(to->budget, from->budget);
    for (struct budget *at = from->budget; at != end; at = at->parent)
        at->used -= bytes;
    for (struct budget *at = to->budget; at != end; at = at->parent)
        at->used += bytes;
    leave_reserves(from->budget, end, from);
    for (struct budget *at = end; at; at = at->parent)
        if (at->favoured == from)
            at->favoured = to;
    to->bytes += bytes;
    from->bytes -= bytes;
    tell_room(root_of(to->budget));
}

void budget_hand_over(struct budget_hold *from, struct budget_hold *to)
{
    budget_split(from, to, from->bytes);
    budget_close(from);
}

void budget_step_back(struct budget_hold *hold)
{
    if (!hold->budget)
        return;
    leave_reserves(hold->budget, NULL, hold);
    tell_room(root_of(hold->budget));
}

void budget_spare(struct budget_hold *hold, void (*on_spare)(struct budget_hold *hold))
{
    if (!hold->budget || list_linked(&hold->node))
        return;
    hold->on_spare = on_spare;
    list_append(&hold->budget->spare, &hold->node);
    for (struct budget *at = hold->budget; at->parent && !list_linked(&at->node); at = at->parent)
        list_append(&at->parent->offering, &at->node);
    tell_room(root_of(hold->budget));
}

void budget_close(struct budget_hold *hold)
{
    struct budget *budget = hold->budget;
    if (!budget)
        return;
    list_remove(&hold->node);
    budget_shrink(hold, hold->bytes);
    budget_step_back(hold);
    hold->budget = NULL;
    hold->wanted = 0;
    budget_unref(budget);
}
