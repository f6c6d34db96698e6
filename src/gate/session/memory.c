// Owns the byte budgets of the gate: in all, of each tenant, of each identity, and of callers not authenticated yet.
//
//   all ─┬─ unauthenticated
//        └─ tenant ── identity
//
// The budget of an identity exists while bytes are held for it, or it has a session.
#include "gate/session/memory.h"
#include "base/mem.h"
#include "gate/session/call.h"
#include "room.h"
#include <stdlib.h>

#define MORE_MAX 4096  // bytes by which an answer may exceed the server's answer

struct memory_identity {
    struct gate *gate;
    struct budget *budget;
    char *key;
    size_t key_len;
};

static void on_serve(struct loop_task *task) { budget_serve(((struct memory *)task->arg)->all); }

// Runs later, because the code that freed the memory is not finished.
static void on_room(void *arg)
{
    struct memory *memory = arg;
    loop_task_put(memory->loop, &memory->serve);
}

static struct budget *make(struct gate *gate, struct budget *parent, const char *option, int64_t bound)
{
    struct budget_spec spec = {option, (size_t)bound, (size_t)gate->config->limits.max_message};
    return budget_new(parent, &spec);
}

void memory_init(struct gate *gate)
{
    struct memory *memory = &gate->memory;
    const struct config_limits *limits = &gate->config->limits;
    memory->loop = gate->loop;
    memory->serve = (struct loop_task){.run = on_serve, .arg = memory, .name = "memory"};
    memory->all = make(gate, NULL, "limits.memory", limits->memory);
    memory->all->on_room = on_room;
    memory->all->arg = memory;
    memory->unauthenticated = make(gate, memory->all, "limits.identity_memory", limits->identity_memory);
}

static void set_bound(const struct gate *gate, struct budget *budget, int64_t bound)
{
    budget_set_bound(budget, (size_t)bound, (size_t)gate->config->limits.max_message);
}

void memory_configure(struct gate *gate)
{
    struct memory *memory = &gate->memory;
    const struct config_limits *limits = &gate->config->limits;
    void *value;
    set_bound(gate, memory->all, limits->memory);
    set_bound(gate, memory->unauthenticated, limits->identity_memory);
    for (size_t at = 0; map_next(&memory->identities, &at, NULL, &value);)
        set_bound(gate, ((struct memory_identity *)value)->budget, limits->identity_memory);
}

void memory_set_tenant(struct tenant *tenant, int64_t bound)
{
    struct gate *gate = tenant->gate;
    if (tenant->memory)
        set_bound(gate, tenant->memory, bound);
    else
        tenant->memory = make(gate, gate->memory.all, "tenants.NAME.limits.memory", bound);
}

void memory_release(struct gate *gate)
{
    struct memory *memory = &gate->memory;
    void *value;
    loop_task_drop(&memory->serve);
    memory->all->on_room = NULL;
    for (size_t at = 0; map_next(&memory->identities, &at, NULL, &value);) {
        struct memory_identity *own = value;
        own->budget->on_unused = NULL;  // objects that are freed at the end of the turn may still refer to the budget
        free(own->key);
        free(own);
    }
    map_release(&memory->identities);
    budget_unref(memory->unauthenticated);
    budget_unref(memory->all);
}

static void on_unused(struct budget *budget)
{
    struct memory_identity *own = budget->arg;
    map_remove(&own->gate->memory.identities, span_make(own->key, own->key_len));
    free(own->key);
    free(own);
}

struct budget *memory_of(struct gate *gate, const struct tenant *tenant, const struct identity *identity)
{
    if (identity->proof == IDENTITY_ANONYMOUS)
        return budget_ref(tenant->memory);
    struct buf key = {0};
    tally_put_key(identity, &key);
    struct memory_identity *own = map_find(&gate->memory.identities, buf_span(&key));
    if (own) {
        buf_release(&key);
        return budget_ref(own->budget);
    }
    own = mem_new(struct memory_identity);
    own->gate = gate;
    own->budget = make(gate, tenant->memory, "limits.identity_memory", gate->config->limits.identity_memory);
    own->budget->on_unused = on_unused;
    own->budget->arg = own;
    own->key_len = key.len;
    map_put(&gate->memory.identities, buf_span(&key), own);
    own->key = buf_take(&key, NULL);
    return own->budget;
}

size_t memory_used(const struct memory_identity *own) { return own->budget->used; }

bool memory_refuse(const struct budget *full, size_t more, struct err *err)
{
    return err_set(err, ERR_MEMORY,
                   "not enough memory for %zu bytes: %zu of %zu are held, and %zu reserved for an answer (%s)", more,
                   full->used, full->bound, full->reserve, full->option);
}

// A large body is not copied, so a request to a server may refer to it after the end of the call. The parts of a batch share a body.
static void hold_body(struct call *call)
{
    struct blob *body = call->body;
    if (body && !body->held && body->len >= SHARED_MIN && body->len <= call->held.bytes)
        blob_hold(body, &call->held, body->len);
}

bool memory_hold_call(struct call *call)
{
    const struct budget *full;
    struct budget *budget = call->session->memory;
    if (!call->held.budget)
        budget_open(&call->held, budget);
    if (!budget_move(&call->held, budget, false, &full) || !budget_grow(&call->held, sizeof *call, &full))
        return memory_refuse(full, call->held.bytes + sizeof *call, &call->err);
    hold_body(call);
    return true;
}

bool memory_hold_reply(struct call *call, struct blob *owner)
{
    const struct budget *full;
    return !owner->held || budget_move(owner->held, call->session->memory, true, &full) ||
           memory_refuse(full, owner->len, &call->err);
}

// Bytes that were read on a connection of this caller alone count for the caller already.
static void take_over(struct call *call)
{
    struct budget_hold *read = call->reply ? call->reply->held : NULL;
    size_t len = call->text.len;
    if (read && read->budget == call->text_held.budget)
        budget_split(read, &call->text_held, len < read->bytes ? len : read->bytes);
}

bool memory_hold_answer(struct call *call)
{
    const struct budget *full;
    if (call->answer)  // its parts have their own holds
        return true;
    if (!call->text_held.budget)
        budget_open(&call->text_held, call->session->memory);
    take_over(call);
    if (call->text.len <= call->text_held.bytes)
        return true;
    size_t more = call->text.len - call->text_held.bytes;
    if (call->err.code || (call->text_held.bytes &&
                           more <= MORE_MAX)) {  // an error, or little more: small enough to be counted without a check
        budget_count(&call->text_held, more);
        return true;
    }
    return budget_grow(&call->text_held, more, &full) || memory_refuse(full, more, &call->err);
}
