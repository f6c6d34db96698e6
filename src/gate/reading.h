// Reading a call's message, on the loop or by the background worker, and what it finds.
#ifndef GATE_READING_H
#define GATE_READING_H

#include "base/json.h"
#include "gate/method/method.h"

#define ARGUMENTS_MAX ((size_t)1 << 20)  // bytes that a policy judges
#define ARGUMENTS_DEPTH_MAX 64

// What was found in the arguments of a large message.
struct arguments {
    struct span raw;  // at is NULL: there are none
    unsigned depth;
    char digest[AUDIT_HASH_CHARS + 1];  // with an audit
    struct buf *kept;                   // what the audit keeps of them; NULL: nothing
    json_t *tree;                       // NULL: too large or too deep for a policy, or jansson does not take them
};

// Reads a small message and begins with a large one. False: call->err says why not. What may be an invalid answer to a
// question goes on to reading_wait(), which refuses it: only the session tells whether a server waits for it.
bool reading_begin(struct call *call) MUST_CHECK;
// PHASE_NEXT once the message has been read, and those that its session sent before it.
enum phase_result reading_wait(struct call *call);
// The call is over: lets go of its message.
void reading_end(struct call *call);

// Of a batch (call->batched):
size_t reading_count(const struct call *call);  // maybe more than limits.batch
bool reading_has(const struct call *call, enum method method);
void reading_take_part(const struct call *batch, size_t at, struct call *part);

#endif
