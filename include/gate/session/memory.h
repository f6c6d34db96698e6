// Byte budgets of the gate: which there are, and what it says when one is used up.
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
    struct budget *unauthenticated;  // callers that are not authenticated yet share it
    struct map identities;           // "tenant\0provider\0subject\0" -> struct memory_identity
    struct loop_task serve;
};

void memory_init(struct gate *gate);       // before its tenants are there
void memory_configure(struct gate *gate);  // the bounds of gate->config count from now on
void memory_release(struct gate *gate);
// The budget of an identity of the tenant, with a reference for the caller. Anonymous callers are indistinguishable: they share
// that of their tenant.
struct budget *memory_of(struct gate *gate, const struct tenant *tenant, const struct identity *identity);
size_t memory_used(const struct memory_identity *own);  // of its budget
// Why a hold could not grow; returns false.
bool memory_refuse(const struct budget *full, size_t more, struct err *err);
// A call counts for its caller once it is in a session. False: call->err says which limit has no room.
bool memory_hold_call(struct call *call) MUST_CHECK;
bool memory_hold_reply(struct call *call, struct blob *owner) MUST_CHECK;  // the same for the text of a large reply,
bool memory_hold_answer(struct call *call) MUST_CHECK;  // and for the answer, until the caller has read it

#endif
