// Byte budgets of the gate, and the errors for an exhausted budget.
#ifndef GATE_MEMORY_H
#define GATE_MEMORY_H

#include "auth/caller/identity.h"
#include "base/blob.h"
#include "base/map.h"
#include "loop/loop.h"

#define MEMORY_RETRY_MS 1000

struct gate;
struct call;
struct tenant;
struct memory_identity;

struct memory {
    struct loop *loop;
    struct budget *all;
    struct budget *unauthenticated;  // shared by all callers that are not authenticated yet
    struct map identities;           // "tenant\0provider\0subject\0" -> struct memory_identity
    struct loop_task serve;
};

void memory_init(struct gate *gate);       // before its tenants are made
void memory_configure(struct gate *gate);  // applies the bounds of gate->config
void memory_release(struct gate *gate);
// Returns the budget of an identity of the tenant, with a reference. Anonymous callers are indistinguishable and share the budget
// of their tenant.
struct budget *memory_of(struct gate *gate, const struct tenant *tenant, const struct identity *identity);
size_t memory_used(const struct memory_identity *own);  // bytes held of its budget
// Sets the error for a hold that could not grow; returns false.
bool memory_refuse(const struct budget *full, size_t more, struct err *err);
// Count a call for the budget of its caller, once it is in a session. False: call->err names the limit that was reached.
bool memory_hold_call(struct call *call) MUST_CHECK;
bool memory_hold_reply(struct call *call, struct blob *owner) MUST_CHECK;  // the text of a large reply
bool memory_hold_answer(struct call *call) MUST_CHECK;                     // the answer, until the caller has read it

#endif
