// Byte budgets: bounds on the bytes held for an identity, for a tenant and in all. Pure, without a loop.
//
// A hold is what one object (a body, an answer, a queue) has of a budget. Its bytes count for the budget and for those above
// it. Growing succeeds at every level or at none.
//
// The last `reserve` bytes of a bound are for one hold at a time: the one that has waited longest. So one answer can
// always be read to its end, and two that are half read cannot wait for each other. A hold keeps the reserve until it is
// released, and needs the reserves of the levels below before it gets that of a level (tests/unit/base/budget_test.c).
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include "base/err.h"
#include "base/list.h"
#include <stdbool.h>
#include <stddef.h>

struct budget_hold;

struct budget {
    struct budget *parent;  // NULL: it is the root
    const char *option;     // that sets the bound
    size_t bound;           // 0: none
    size_t reserve;
    size_t used;
    struct budget_hold *favoured;              // may use the reserve
    struct list spare;                         // budget_hold.node of those that can give something up, oldest first
    struct list offering;                      // budget.node of those below that had something spare or below them
    struct list node;                          // among those of its parent
    struct list waiting;                       // of the root: budget_hold.node of those that wait, oldest first
    unsigned refs;                             // with its holds and the budgets below
    void (*on_unused)(struct budget *budget);  // before it is freed; may be NULL
    void (*on_room)(void *arg);                // of the root: budget_serve() may have something to do; may be NULL
    void *arg;
};

struct budget_spec {
    const char *option;  // outlives the budget
    size_t bound, reserve;
};

// Zeroed: it holds nothing, of no budget. It must stay where it is while it has a budget.
struct budget_hold {
    struct budget *budget;  // NULL: it is not counted
    size_t bytes;
    size_t wanted;                               // it waits for so many more
    struct list node;                            // among those that wait, or the spare ones
    void (*on_room)(struct budget_hold *hold);   // it has got what it wanted
    void (*on_spare)(struct budget_hold *hold);  // gives something up, for others
    void *arg;
};

struct budget *budget_new(struct budget *parent, const struct budget_spec *spec);
// What is held stays, even if it is more than the new bound.
void budget_set_bound(struct budget *budget, size_t bound, size_t reserve);
struct budget *budget_ref(struct budget *budget);
void budget_unref(struct budget *budget);
// Of the root: gives those that wait what there is room for, oldest first.
void budget_serve(struct budget *root);

void budget_open(struct budget_hold *hold, struct budget *budget);  // it must have none
// By so many bytes more, now or not at all. False: `full`, if it is not NULL, is the level that has no room.
bool budget_grow(struct budget_hold *hold, size_t more, const struct budget **full) MUST_CHECK;
// The same, but it may use a reserve, and waits for its turn: false, and on_room() comes from budget_serve().
bool budget_await(struct budget_hold *hold, size_t more, const struct budget **full) MUST_CHECK;
// What is in memory already counts, room or not.
void budget_count(struct budget_hold *hold, size_t more);
void budget_shrink(struct budget_hold *hold, size_t less);  // to nothing: others may use the reserves that it has
// It belongs to another budget of the same root now, where it may use reserves that are free if `reserve`. False, and nothing
// has changed: there it has no room.
bool budget_move(struct budget_hold *hold, struct budget *budget, bool reserve, const struct budget **full) MUST_CHECK;
// `to` gets the bytes of `from`, which is closed, its reserves, and its budget if `to` has none. They are in memory already:
// they count for the budget of `to` even if they are too many there.
void budget_hand_over(struct budget_hold *from, struct budget_hold *to);
// The same for some of the bytes; `from` stays open, without reserves.
void budget_split(struct budget_hold *from, struct budget_hold *to, size_t bytes);
// Asked once to give something up when another hold of its budget has no room, or one of any other at a level that is full
// for it even with the reserve; it may offer more then. Not while it waits.
void budget_spare(struct budget_hold *hold, void (*on_spare)(struct budget_hold *hold));
void budget_close(struct budget_hold *hold);  // harmless if it has no budget

#endif
