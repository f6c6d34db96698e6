// Reading a call's message, on the loop or by the background worker.
#ifndef GATE_READING_H
#define GATE_READING_H

#include "base/json.h"
#include "gate/method/method.h"

#define ARGUMENTS_MAX ((size_t)1 << 20)  // bytes that a policy evaluates
#define ARGUMENTS_DEPTH_MAX 64

// The arguments of a large message.
struct arguments {
    struct span raw;  // at is NULL without arguments
    unsigned depth;
    char digest[AUDIT_HASH_CHARS + 1];  // set if an audit log is configured
    struct buf *kept;                   // the text for the audit log, or NULL
    json_t *tree;                       // NULL: too large or too deep for a policy, or not accepted by jansson
};

// Reads a small message, or prepares the reading of a large one. False: call->err is set. A message that may be an invalid answer to
// a question continues to reading_wait(), which refuses it, because only the session knows whether a server waits for it.
bool reading_begin(struct call *call) MUST_CHECK;
// PHASE_NEXT once the message and all earlier messages of its session have been read.
enum phase_result reading_wait(struct call *call);
// Releases the message of a call that is over.
void reading_end(struct call *call);

// Of a batch (call->batched):
size_t reading_count(const struct call *call);  // maybe more than limits.batch
bool reading_has(const struct call *call, enum method method);
void reading_take_part(const struct call *batch, size_t at, struct call *part);

#endif
