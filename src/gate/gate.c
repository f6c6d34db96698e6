// Owns the gate: its creation, arrivals, the sweep over sessions and slow calls, and shutdown.
#include "gate/gate.h"
#include "admission.h"
#include "apply.h"
#include "auth/access/exchanged_tokens.h"
#include "auth/access/identity_assertion.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "connect/connect.h"
#include "connect_hook.h"
#include "gate/method/method.h"
#include "phase.h"
#include "record.h"
#include "refused.h"
#include <stdlib.h>

#define SWEEP_MS 250
#define RECHECK_SWEEPS 2
#define IDLE_SWEEPS 4
#define IDENTITY_SWEEPS 4  // credentials expire

static void sweep_sessions(struct gate *gate)
{
    void *value;
    for (size_t at = 0; map_next(&gate->sessions, &at, NULL, &value);)
        session_life_sweep(value);
}

// Opens the stream of calls that take longer, so that they get heartbeats.
static void stream_slow_calls(struct gate *gate)
{
    int64_t limit_us = gate->config->timeouts.stream_after_ms * 1000;
    int64_t now_us = loop_now(gate->loop) * 1000;
    while (!list_empty(&gate->quick)) {
        struct call *call = list_entry(gate->quick.next, struct call, quick_node);
        if (now_us - call->started_us < limit_us)
            return;
        list_remove(&call->quick_node);
        if (call->arrival && call->session && !call->new_session)  // the answer's headers carry the id of a new session
            call_open_stream(call);
    }
}

static void on_sweep(struct loop_timer *timer)
{
    struct gate *gate = timer->arg;
    stream_slow_calls(gate);
    recheck_sweep(gate);
    level_sweep(gate);
    link_sweep_retired(gate);
    kept_sweep(gate);
    (void)log_flush();  // reports suppressed lines when their window has ended
    if (gate->sweeps % IDENTITY_SWEEPS == 0)
        gate_recheck_identities(gate);
    if (gate->sweeps % IDLE_SWEEPS == 0)
        idle_sweep(gate);
    if (++gate->sweeps % 20 == 0) {
        sweep_sessions(gate);
        refused_sweep(gate);
        mem_give_back();
    }
    if (gate->grants && gate->sweeps % RECHECK_SWEEPS == 0)
        link_recheck_all(gate);
    loop_timer_set(gate->loop, &gate->sweep, SWEEP_MS);
}

struct gate *gate_new(const struct gate_parts *parts)
{
    struct loop *loop = parts->loop;
    struct gate *gate = mem_new(struct gate);
    gate->runner = &phase_runner;
    gate->events = &events_of_links;
    gate->loop = loop;
    gate->started_ms = loop_now(loop);
    gate->http = parts->http;
    gate->background = parts->background;
    gate->config = config_ref(parts->config);
    gate->chains = config_chains_ref(parts->chains);
    gate->audit = parts->audit;
    throttle_init(&gate->throttle, &gate->config->limits);
    gate->grants = parts->grants;
    gate->catalogue = parts->catalogue;
    list_init(&gate->tenants);
    memory_init(gate);
    apply_configuration(gate, parts->policies);
    secret_random(gate->key, sizeof gate->key);
    secret_random(&gate->next_request, sizeof gate->next_request);
    list_init(&gate->calls);
    list_init(&gate->quick);
    list_init(&gate->levels);
    list_init(&gate->retired);
    list_init(&gate->kept);
    fan_out_init(gate);
    gate->sweep = (struct loop_timer){.on_due = on_sweep, .arg = gate, .name = "gate sweep"};
    loop_timer_set(loop, &gate->sweep, SWEEP_MS);
    gate->connect = connect_hook_new(gate);
    link_start_eager(gate);
    return gate;
}

bool gate_is_profile_name(struct span name) { return profile_name_valid(name); }
const struct config *gate_config(const struct gate *gate) { return gate->config; }
struct connect *gate_connect(const struct gate *gate) { return gate->connect; }
struct span gate_keys(const struct gate *gate) { return assertion_keys_document(gate->keys); }

struct config_chains *gate_chains(const struct gate *gate) { return gate->chains; }

void gate_set_policy(struct gate *gate, const char *name, struct policy *policy)
{
    struct tenant *tenant = tenant_find(gate, name);
    if (!tenant)
        return;
    tenant_set_policy(tenant, policy);
    clock_stamp(tenant->policy_since);
    *tenant->failing_since = '\0';
    recheck_tenant(gate, tenant);
}

void gate_recheck_identities(struct gate *gate)
{
    struct span id;
    void *value;
    struct buf gone = {0};
    for (size_t at = 0; map_next(&gate->sessions, &at, &id, &value);) {
        const struct session *session = value;
        if (!admission_stands(gate, session->identity))
            buf_put_span(&gone, id);
    }
    for (size_t at = 0; at + SESSION_ID_LEN <= gone.len; at += SESSION_ID_LEN) {
        struct session *session = session_find(gate, span_make(gone.at + at, SESSION_ID_LEN));
        if (!session)
            continue;
        log_info("session ended: its credential is no longer valid", LOG_STR("subject", session->identity->subject));
        if (!session->identity->expires || session->identity->expires > clock_wall_s())
            kept_forget_user(gate, session->identity, NULL);  // it was revoked, or its user suspended
        record_session_over(session);
        session_life_end(session);
    }
    buf_release(&gone);
}

bool gate_admit(struct gate *gate, const struct arrival *arrival, int64_t *retry_ms, struct err *err)
{
    struct admission admission = {.credentials = &arrival->credentials, .session_id = arrival->session_id};
    if (admission_open(gate, &admission))
        return true;
    *retry_ms = admission.retry_ms;
    *err = admission.err;
    refused_note(gate, arrival->credentials.peer, err->code);
    return false;
}

void gate_refused(struct gate *gate, const struct peer *peer, enum err_code code) { refused_note(gate, peer, code); }

bool gate_welcomes(struct gate *gate, struct arrival *arrival)
{
    const struct tenant *tenant = admission_before_body(gate, arrival);
    if (!tenant)
        return false;
    struct budget *budget = memory_of(gate, tenant, arrival->who);
    budget_open(&arrival->held, budget);
    budget_unref(budget);
    return true;
}

bool gate_hold(struct gate *gate, struct arrival *arrival, size_t more, int64_t *retry_ms, struct err *err)
{
    const struct budget *full;
    if (!arrival->held.budget)
        budget_open(&arrival->held, gate->memory.unauthenticated);
    if (budget_grow(&arrival->held, more, &full))
        return true;
    *retry_ms = MEMORY_RETRY_MS;
    return memory_refuse(full, more, err);
}

void gate_arrive(struct gate *gate, struct arrival *arrival) { phase_start(gate, arrival); }

void gate_gone(struct gate *gate, struct arrival *arrival)
{
    (void)gate;
    struct call *call = arrival->call;
    if (!call)
        return;
    // A closed connection does not cancel the call in the supported revisions: it continues, and its answer is dropped.
    call->arrival = NULL;
    arrival->call = NULL;
    log_debug("caller disconnected before the answer", LOG_STR("request", call->request_id));
    call->credentials = (struct credentials){0};  // they belong to the connection
    if (!call->identity)
        call_end_silently(call, "the caller disconnected before it was authenticated");
}

void gate_pipe_closed(struct gate *gate, struct span session_id)
{
    struct session *session = session_find(gate, session_id);
    if (session)
        session_life_end(session);
}

void gate_pipe_drain(struct gate *gate, struct span session_id)
{
    struct session *session = session_find(gate, session_id);
    if (!session)
        return;
    session->draining = true;
    if (list_empty(&session->calls))
        session_life_end(session);
}

// ---- shutdown -------------------------------------------------------------------------------

static struct call *find_call(const struct gate *gate, bool open)
{
    list_each(node, &gate->calls) {
        struct call *call = list_entry(node, struct call, node);
        if (open ? call_is_open(call) : call->state == CALL_RECORDED)
            return call;
    }
    return NULL;
}

static void give_up_rows(struct gate *gate)
{
    for (struct call *call; (call = find_call(gate, false));)
        call_give_up_row(call);
}

static void on_too_late(struct loop_timer *timer) { give_up_rows(timer->arg); }

static void close_down(struct gate *gate)
{
    void *value;
    for (struct call *call; (call = find_call(gate, true));)
        call_break_off(call, ERR_SHUTTING_DOWN, err_text(ERR_SHUTTING_DOWN));
    for (size_t at = 0; map_next(&gate->sessions, &at, NULL, &value); at = 0)
        session_life_end(value);
    int64_t left = gate->stop_by_ms - loop_now(gate->loop);
    left = left > 300 ? left : 300;
    gate->deadline.on_due = on_too_late;
    loop_timer_set(gate->loop, &gate->deadline, left / 2);  // so that there is time left to send the errors
    link_close_all(gate, left);
    shutdown_set_state(gate, GATE_CLOSED_DOWN);
    shutdown_settle(gate);
}

static bool work_left(const struct gate *gate)
{
    list_each(node, &gate->calls) {
        const struct call *call = list_entry(node, struct call, node);
        if (call->message.kind == MESSAGE_REQUEST || list_linked(&call->unread_node))
            return true;
    }
    return false;
}

static void on_deadline(struct loop_timer *timer)
{
    struct gate *gate = timer->arg;
    bool late = loop_now(gate->loop) >= gate->stop_by_ms - gate->config->timeouts.shutdown_ms / 2;
    if (work_left(gate) && !late) {
        loop_timer_set(gate->loop, timer, 20);
        return;
    }
    close_down(gate);
}

void gate_replaced(struct gate *gate) { kept_hand_over(gate); }

void gate_shutdown(struct gate *gate, void (*on_done)(void *arg), void *arg)
{
    shutdown_set_state(gate, GATE_CLOSING);
    gate->on_done = on_done;
    gate->done_arg = arg;
    gate->stop_by_ms = loop_now(gate->loop) + gate->config->timeouts.shutdown_ms;
    gate->deadline = (struct loop_timer){.on_due = on_deadline, .arg = gate, .name = "shutdown"};
    loop_timer_set(gate->loop, &gate->deadline, 0);
}

// Runs after the calls that ended in this turn were freed.
static void gate_reap(void *object)
{
    struct gate *gate = object;
    arena_store_release(&gate->arenas);
    free(gate);
}

void gate_free(struct gate *gate)
{
    if (!gate)
        return;
    loop_timer_stop(gate->loop, &gate->sweep);
    loop_timer_stop(gate->loop, &gate->deadline);
    loop_task_drop(&gate->fan_out);
    for (struct call *call; (call = find_call(gate, true));)  // calls that wait for authentication
        call_end_silently(call, "the gateway is shutting down");
    give_up_rows(gate);
    connect_free(gate->connect);
    scope_release_all(gate);
    task_release_all(gate);
    known_release_all(gate);
    tenant_each(node, gate)
        tenant_remove(tenant_at(node));
    throttle_release(&gate->throttle);
    memory_release(gate);
    refused_release(gate);
    exchanged_tokens_free(gate->exchanged);
    assertion_keys_unref(gate->keys);
    map_release(&gate->sessions);
    map_release(&gate->session_counts);
    map_release(&gate->process_counts);
    map_release(&gate->links);
    secret_wipe(gate->key, sizeof gate->key);
    config_chains_unref(gate->chains);
    config_unref(gate->config);
    loop_reap(gate->loop, gate, gate_reap);
}
