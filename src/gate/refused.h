// Requests that are turned away before they are calls, as the audit is told of them.
#ifndef GATE_REFUSED_H
#define GATE_REFUSED_H

#include "auth/credentials.h"
#include "base/err.h"

struct gate;

void refused_note(struct gate *gate, const struct peer *peer, enum err_code code);  // `peer` may be NULL
void refused_sweep(struct gate *gate);
void refused_release(struct gate *gate);

#endif
