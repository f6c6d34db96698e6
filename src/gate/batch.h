// JSON-RPC batches (2025-03-26 and before).
#ifndef GATE_BATCH_H
#define GATE_BATCH_H

#include "gate/method/method.h"

// The parts of a batch start in the phase `route`. PHASE_WAIT: the last of them resumes this call.
enum phase_result batch_split(struct call *call);

#endif
