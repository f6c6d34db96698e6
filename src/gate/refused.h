// Audit rows of requests that are refused before their caller is authenticated.
#ifndef GATE_REFUSED_H
#define GATE_REFUSED_H

#include "auth/caller/credentials.h"
#include "base/err.h"

struct gate;

void refused_note(struct gate *gate, const struct peer *peer, enum err_code code);  // `peer` may be NULL
bool refused_is_row(struct gate *gate);  // true if one more refused credential may have a row of its own
void refused_sweep(struct gate *gate);
void refused_release(struct gate *gate);

#endif
