// Requests that are refused before it is known who sends them, as the audit records them.
#ifndef GATE_REFUSED_H
#define GATE_REFUSED_H

#include "auth/caller/credentials.h"
#include "base/err.h"

struct gate;

void refused_note(struct gate *gate, const struct peer *peer, enum err_code code);  // `peer` may be NULL
bool refused_is_row(struct gate *gate);  // may one more refused credential be a row of its own?
void refused_sweep(struct gate *gate);
void refused_release(struct gate *gate);

#endif
