// A message of a server on its way to many sessions.
#ifndef GATE_FAN_OUT_H
#define GATE_FAN_OUT_H

#include "state.h"

#define FAN_OUT_TEXTS 3

struct fan_out {
    struct list node;  // in link->fan_outs
    struct link *link;
    // Tells the session, if it is meant for it; false: it is not.
    bool (*tell)(struct fan_out *fan_out, struct session *session);

    // what it says, for `tell`
    struct span params;  // of the server's message
    struct buf key;      // of what it is about: a subscription key or a task id
    int level;
    unsigned kinds;
    bool known;
    struct blob *texts[FAN_OUT_TEXTS];  // made by `tell` for the sessions of one scope

    // how far it has come
    struct list *use;      // in link->uses; NULL: it has not begun
    struct list *session;  // in that scope's sessions
    struct buf kept;       // the params, when they outlive the message
};

// Tells the sessions of the link: those of this turn's slice at once, the others from the loop. Takes over `key`.
void fan_out_start(const struct fan_out *news);

#endif
