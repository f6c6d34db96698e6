// The audit rows of the gate: of calls when they end, and of sessions whose credential is no longer valid.
#ifndef GATE_RECORD_H
#define GATE_RECORD_H

#include "gate/session/call.h"

enum phase_result record_call(struct call *call);
void record_session_over(const struct session *session);  // because its credential is no longer valid

#endif
