// What a server's messages hold of a budget while they are read.
#ifndef UPSTREAM_INTAKE_H
#define UPSTREAM_INTAKE_H

#include "upstream.h"

struct intake {
    struct upstream *upstream;
    struct budget_hold held;
    void (*on_room)(void *arg);
    void *arg;
    bool told;  // that it waits, in the log
};

void intake_open(struct intake *intake, struct upstream *upstream, struct budget *memory, void (*on_room)(void *arg),
                 void *arg);
// So many bytes in all are to be kept. False: not before on_room(), which comes from the loop; until then nothing more is
// read.
bool intake_cover(struct intake *intake, size_t bytes) MUST_CHECK;
bool intake_waits(const struct intake *intake);
void intake_keep(struct intake *intake, size_t bytes);            // of what was taken, only so many are still kept
void intake_hand_over(struct intake *intake, struct blob *blob);  // which has the memory of a message now
// receive_message(), whose receiver may take over what the message is held by.
void intake_deliver(struct intake *intake, struct span text, struct blob *owner, struct upstream_request *origin);
void intake_close(struct intake *intake);  // harmless if it was never opened

#endif
