// Byte budgets: bounds on the bytes held for an identity, for a tenant and in all. Pure, without a loop.
//
// A hold is the part of a budget that one object (a body, an answer, a queue) has. Its bytes count for the budget and
// for all budgets above it. Growing succeeds at every level or at none.
//
// The last `reserve` bytes of a bound are for one hold at a time, the one waiting longest. So one answer can always be
// read to its end, and two half-read answers cannot wait for each other. A hold keeps the reserve until it is released,
// and needs the reserves of the levels below before it gets that of a level (tests/unit/base/budget_test.c).
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include "base/err.h"
#include "base/list.h"
#include <stdbool.h>
#include <stddef.h>

struct budget_hold;

struct budget {
    struct budget *parent;  // NULL for the root
    const char *option;     // that sets the bound
    size_t bound;           // 0: unlimited
    size_t reserve;
    size_t used;
    struct budget_hold *favoured;              // may use the reserve
    struct list spare;                         // budget_hold.node of holds that can give up bytes, oldest first
    struct list offering;                      // budget.node of children that may have spare holds, at any level
    struct list node;                          // in `offering` of its parent
    struct list waiting;                       // of the root: budget_hold.node of waiting holds, oldest first
    unsigned refs;                             // its owner, its holds and its children
    void (*on_unused)(struct budget *budget);  // before it is freed; may be NULL
    void (*on_room)(void *arg);  // of the root: bytes may have become free, so call budget_serve(); may be NULL
    void *arg;
};

struct budget_spec {
    const char *option;  // outlives the budget
    size_t bound, reserve;
};

// Zeroed: no budget and no bytes. A hold must not be moved in memory while it has a budget.
struct budget_hold {
    struct budget *budget;  // NULL: its bytes are not counted
    size_t bytes;
    size_t wanted;                               // bytes that it waits for
    struct list node;                            // in `waiting` or `spare`
    void (*on_room)(struct budget_hold *hold);   // the wanted bytes are held now
    void (*on_spare)(struct budget_hold *hold);  // asks the owner to give up bytes, for other holds
    void *arg;
};

struct budget *budget_new(struct budget *parent, const struct budget_spec *spec);
// Bytes that are held stay held, even above the new bound.
void budget_set_bound(struct budget *budget, size_t bound, size_t reserve);
struct budget *budget_ref(struct budget *budget);
void budget_unref(struct budget *budget);
// For the root: grows waiting holds as far as the bounds allow, oldest first.
void budget_serve(struct budget *root);

void budget_open(struct budget_hold *hold, struct budget *budget);  // `hold` must not have a budget
// Grows by `more` bytes, now or not at all. False: `full`, if not NULL, is set to the level whose bound is reached.
bool budget_grow(struct budget_hold *hold, size_t more, const struct budget **full) MUST_CHECK;
// The same, but the hold may use a reserve, and waits for its turn: false, and budget_serve() will call on_room().
bool budget_await(struct budget_hold *hold, size_t more, const struct budget **full) MUST_CHECK;
// Counts bytes that are in memory already, even above the bound.
void budget_count(struct budget_hold *hold, size_t more);
void budget_shrink(struct budget_hold *hold, size_t less);  // a hold without bytes gives up its reserves
// Moves the hold to another budget of the same root. `reserve`: it may use free reserves there. False: its bytes do not
// fit there, and nothing has changed.
bool budget_move(struct budget_hold *hold, struct budget *budget, bool reserve, const struct budget **full) MUST_CHECK;
// Moves the bytes and reserves of `from`, which is closed, to `to`, and its budget if `to` does not have one. The bytes
// are in memory already: they count for the budget of `to` even above its bound.
void budget_hand_over(struct budget_hold *from, struct budget_hold *to);
// The same for some of the bytes; `from` stays open, without reserves.
void budget_split(struct budget_hold *from, struct budget_hold *to, size_t bytes);
// Offers to give up bytes: on_spare() is called once, when the bound of a budget of the hold is reached, either for a
// hold of the same budget or, at a level above, for a hold that may use the reserve. It may offer again then. Not for a
// waiting hold.
void budget_spare(struct budget_hold *hold, void (*on_spare)(struct budget_hold *hold));
void budget_close(struct budget_hold *hold);  // harmless if it does not have a budget

#endif
