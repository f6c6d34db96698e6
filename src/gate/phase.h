// The phases of a call: their order, and those that have a file of their own.
#ifndef GATE_PHASE_H
#define GATE_PHASE_H

#include "gate/method/method.h"

// In the order in which a call runs through them.
enum phase {
    PHASE_RECEIVE,
    PHASE_AUTHENTICATE,
    PHASE_SESSION,
    PHASE_ROUTE,
    PHASE_AUTHORIZE,
    PHASE_LIMIT,
    PHASE_DISPATCH,
    PHASE_OFFER,  // from here on every call runs through all phases, even if it failed
    PHASE_SHAPE,
    PHASE_RECORD,
    PHASES,
};

extern const struct call_runner phase_runner;
void phase_start(struct gate *gate, struct arrival *arrival);

phase_fn phase_session, phase_authorize, phase_shape, phase_record;
void phase_shape_error(struct call *call);  // replaces the answer by call->err

#endif
