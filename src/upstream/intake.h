// The budget hold of a server's messages while they are read.
#ifndef UPSTREAM_INTAKE_H
#define UPSTREAM_INTAKE_H

#include "upstream.h"

struct intake {
    struct upstream *upstream;
    struct budget_hold held;
    void (*on_room)(void *arg);
    void *arg;
    bool told;  // the wait was logged
};

void intake_open(struct intake *intake, struct upstream *upstream, struct budget *memory, void (*on_room)(void *arg),
                 void *arg);
// Takes memory for so many bytes in all from the budget. False: the budget is exhausted, and the transport must not read until
// on_room(), which is called from the loop.
bool intake_cover(struct intake *intake, size_t bytes) MUST_CHECK;
bool intake_waits(const struct intake *intake);
void intake_keep(struct intake *intake, size_t bytes);            // gives bytes above this number back to the budget
void intake_hand_over(struct intake *intake, struct blob *blob);  // moves the hold of a message to its blob
// Calls receive_message(), whose receiver may take over the hold of the message.
void intake_deliver(struct intake *intake, struct span text, struct blob *owner, struct upstream_request *origin);
void intake_close(struct intake *intake);  // no effect if it was never opened

#endif
