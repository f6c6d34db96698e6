// THE PHASE TABLE. Every call runs through it from top to bottom; read this file first.
//
//   receive       parse the message, unless it is large     → 400 if it is not JSON-RPC
//   authenticate  credentials → identity; profile           → 401, 403, 404, 429, 503          (may wait)
//   session       find or open the session; parse a large   → 400, 404, 503                    (may wait)
//                 message; split batches
//   route         find the server and its name of the item  → unknown tool, server unavailable (may wait)
//   authorize     ask the policy                            → 403 in-band
//   limit         rates and calls in flight                 → 429 in-band, 503
//   dispatch      handle the call here or at the server                                        (waits here)
//   offer         a connect link, if the server needs a login of the user                      (may wait)
//   shape         translate the answer for this caller
//   record        write one log line and one audit row for every call                          (may wait)
//
// A phase returns NEXT, WAIT, REPLY or FAIL and never calls another. The runner below is the only code that moves a call.
// Invariants, checked in every build:
//   * `dispatch` runs only after `authorize` allowed this call under the policy in force.
//   * `record` runs exactly once for each call, also after a denial, a timeout or a disconnect of the caller.
//   * Only the phases marked above wait.
//   * A call never goes back (call_set_phase()).
// A call that waits after `authorize` (for its server to start, for a token, for a connection) is authorized again before it is
// sent, if a policy changed meanwhile (still_allowed(), tests/e2e/policy/inforce.test.mjs).
// The policy is asked before existence is disclosed: a name that no server has is authorized like any other.
#include "phase.h"
#include "admission.h"
#include "base/check.h"
#include "base/clock.h"
#include "gate/session/memory.h"
#include "gate/session/permit.h"
#include "reading.h"
#include <inttypes.h>
#include <stdio.h>

static phase_fn receive, authenticate, limit, dispatch, offer;

// The places for configured stages around lists and calls: before `dispatch` for messages of callers, after `offer` for answers.
static const struct phase_row {
    const char *name;
    phase_fn *run;
    bool may_wait;
} phases[PHASES] = {
    [PHASE_RECEIVE] = {"receive", receive, false},
    [PHASE_AUTHENTICATE] = {"authenticate", authenticate, true},
    [PHASE_SESSION] = {"session", phase_session, true},
    [PHASE_ROUTE] = {"route", dispatch_route, true},
    [PHASE_AUTHORIZE] = {"authorize", phase_authorize, false},
    [PHASE_LIMIT] = {"limit", limit, false},
    [PHASE_DISPATCH] = {"dispatch", dispatch, true},
    [PHASE_OFFER] = {"offer", offer, true},
    [PHASE_SHAPE] = {"shape", phase_shape, false},
    [PHASE_RECORD] = {"record", phase_record, true},
};

static void finish(struct call *call);

// ---- the runner -----------------------------------------------------------------------------

// The next phase of a call whose outcome is known.
static size_t after(size_t phase) { return phase < PHASE_OFFER ? PHASE_OFFER : phase + 1; }

static void run(struct call *call)
{
    while (call->phase < PHASES) {
        const struct phase_row *row = &phases[call->phase];
        loop_note(call->gate->loop, row->name, call->link ? upstream_server(call->link->upstream)->name : NULL);
        switch (row->run(call)) {
        case PHASE_NEXT: call_set_phase(call, call->phase + 1); break;
        case PHASE_WAIT: CHECK(row->may_wait); return;
        case PHASE_REPLY: call_set_phase(call, after(call->phase)); break;
        case PHASE_FAIL:
            CHECK(call->err.code != ERR_NONE);
            call_set_phase(call, after(call->phase));
            break;
        }
    }
    finish(call);
}

// ---- receive --------------------------------------------------------------------------------

// A large message is read in the phase `session`, after its caller was authenticated.
static enum phase_result receive(struct call *call)
{
    return call->op != ARRIVAL_MESSAGE || reading_begin(call) ? PHASE_NEXT : PHASE_FAIL;
}

// ---- authenticate ---------------------------------------------------------------------------

static void resume_call(void *arg) { call_resume(arg); }

// Profiles are looked up after authentication, because profiles of other tenants do not exist for the caller.
static enum phase_result find_profile(struct call *call)
{
    struct span name = call->profile_name;
    if (!name.at || profile_find(call->tenant->profiles, name))
        return PHASE_NEXT;
    return call_fail(call, ERR_NO_PROFILE, "\"%.*s\"", name.len > 64 ? 64 : (int)name.len, name.at);
}

static enum phase_result authenticate(struct call *call)
{
    struct gate *gate = call->gate;
    struct admission admission = {
        .credentials = &call->credentials, .session_id = call->session_id, .wait = &call->auth_wait};
    call->auth_wait.resume = resume_call;
    call->auth_wait.arg = call;
    enum admission_verdict verdict = admission_of_arrival(gate, call->arrival, &admission);
    call->identity = admission.identity;
    if (admission.tenant)
        call->tenant = tenant_ref(admission.tenant);
    if (verdict == ADMISSION_WAIT && gate->state != GATE_OPEN)
        return call_fail(call, ERR_SHUTTING_DOWN, "shutting down before authentication finished");
    if (verdict != ADMISSION_REFUSED && call->op == ARRIVAL_UNREAD)
        return call_fail(call, ERR_AUTH_UNAVAILABLE, "request body too large for an unauthenticated caller");
    if (verdict == ADMISSION_WAIT)
        return PHASE_WAIT;
    if (verdict == ADMISSION_REFUSED) {
        call->err = admission.err;
        return admission.err.code == ERR_AUTH_LIMITED ? call_put_off(call, admission.retry_ms) : PHASE_FAIL;
    }
    if (call->arrival) {
        call->arrival->authenticated = true;
        admission_name_arrival(call->arrival, call->identity);
    }
    caller_token_keep(call);
    return find_profile(call);
}

// ---- limit ----------------------------------------------------------------------------------

// Counts the use of a tool, prompt or resource. These are not counted: lists, session operations, requests about the task of an
// earlier call, and the end of a subscription.
static bool within_rates(struct call *call)
{
    enum policy_kind kind;
    if (permit_of(call, &kind) != PERMIT_POLICY || call->method == METHOD_RESOURCES_UNSUBSCRIBE)
        return true;
    struct limit *limits = call->tenant->limit;
    if (!limits)
        return true;
    struct limit_call counted = {call->identity, upstream_server(call->link->upstream)->name,
                                 call->method == METHOD_TOOLS_CALL ? call->target : (struct span){0}};
    return limit_enter(limits, &counted, loop_now(call->gate->loop), &call->limits, &call->err);
}

static enum phase_result limit(struct call *call)
{
    if (call->gate->audit && !audit_healthy(call->gate->audit))
        return call_fail(call, ERR_TOO_MANY, "the audit log cannot be written");
    if (!call_within_session(call))
        return PHASE_FAIL;
    return within_rates(call) ? PHASE_NEXT : call_put_off(call, call->limits.retry_ms);
}

// ---- dispatch -------------------------------------------------------------------------------

static enum phase_result dispatch(struct call *call)
{
    CHECK(call->state == CALL_DISPATCHED || (call_is_allowed(call) && call->judged_epoch == call->gate->policy_epoch));
    loop_timer_stop(call->gate->loop, &call->timer);  // it may run for the wait for lists
    return dispatch_call(call);
}

// Authorizes a call that has waited again, if the policy changed. False: it is denied now, and call->err is set.
static bool still_allowed(struct call *call)
{
    return call->judged_epoch == call->gate->policy_epoch || phase_authorize(call) == PHASE_NEXT;
}

static bool may_send(struct upstream_request *request, struct err *err)
{
    struct call *call = request->arg;
    if (still_allowed(call))
        return true;
    *err = call->err;
    return false;
}

// ---- offer ----------------------------------------------------------------------------------

static enum phase_result offer(struct call *call)
{
    if (call->silent || call->err.code != ERR_LOGIN || call->message.kind != MESSAGE_REQUEST)
        return PHASE_NEXT;
    caller_token_explain(call);
    return login_offer_start(call) ? PHASE_WAIT : PHASE_NEXT;
}

// ---- ending ----------------------------------------------------------------------------------

static void finish(struct call *call)
{
    struct gate *gate = call->gate;
    CHECK(call->state == CALL_RECORDED);
    call_deliver(call);
    task_news_over(call);
    budget_close(&call->held);
    budget_close(&call->text_held);
    list_remove(&call->node);
    list_remove(&call->quick_node);
    list_remove(&call->wait_node);
    list_remove(&call->auth_wait.node);
    reading_end(call);
    if (call->session) {
        list_remove(&call->session_node);
        call->session->call_count--;
        bool failed_start = call->new_session && call->err.code;
        bool drained = call->session->draining && list_empty(&call->session->calls);
        bool over = failed_start || drained || call->op == ARRIVAL_END;
        if (over && call->session->state != SESSION_ENDED)
            session_life_end(call->session);
        else
            session_settle(call->session);
    }
    if (call->scope)
        scope_release(call->scope);
    shutdown_settle(gate);
    loop_reap(gate->loop, call, call_free);
}

static void end_early(struct call *call, const struct err *why, bool silent);

// Ends the parts of a batch. The batch itself ends with the last of them.
static bool end_parts(struct call *call, const struct err *why, bool silent)
{
    bool any = false;
    for (bool more = true; more;) {
        more = false;
        list_each(node, &call->session->calls) {
            struct call *part = list_entry(node, struct call, session_node);
            if (part->parent != call)
                continue;
            any = true;
            if ((more = call_is_open(part))) {
                end_early(part, why, silent);
                break;
            }
        }
    }
    return any;
}

// Ends a call before its outcome is known: because of a cancellation, the end of its session, or shutdown.
static void end_early(struct call *call, const struct err *why, bool silent)
{
    if (!call_is_open(call))
        return;
    call_set_state(call, CALL_ENDING);
    bool sent = list_linked(&call->link_node);
    dispatch_abandon(call, why->detail);
    if (call->parts_left && end_parts(call, why, silent)) {
        caller_token_end(call);  // at once, because a part may still wait for its audit row after the session has ended
        return;
    }
    call->silent = silent;
    call->err = *why;
    buf_clear(&call->error_data);
    struct buf text = {0};
    buf_printf(&text, "%s%s", why->detail, sent ? "; the server may have executed the call" : "");
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
    call_set_phase(call, PHASE_SHAPE);
    run(call);
}

void phase_start(struct gate *gate, struct arrival *arrival)
{
    struct call *call = call_new(gate);
    call->started_us = clock_now_us();
    call->op = arrival->op;
    call->arrival = arrival;
    call->pipe = arrival->pipe;
    call->credentials = arrival->credentials;
    call->chains = config_chains_ref(gate->chains);
    call->session_id = arrival->session_id.at ? arena_span(&call->arena, arrival->session_id) : (struct span){0};
    call->version = arrival->version.at ? arena_span(&call->arena, arrival->version) : (struct span){0};
    call->last_event_id =
        arrival->last_event_id.at ? arena_span(&call->arena, arrival->last_event_id) : (struct span){0};
    call->profile_name = arrival->profile.at ? arena_span(&call->arena, arrival->profile) : (struct span){0};
    if (call->op == ARRIVAL_MESSAGE) {
        call->body = blob_take(&arrival->body);
        call->body->wiped = true;
    }
    budget_hand_over(&arrival->held, &call->held);
    arrival->call = call;
    snprintf(call->request_id, sizeof call->request_id, "%016" PRIx64, ++gate->next_request);
    list_append(&gate->calls, &call->node);
    if (call->op == ARRIVAL_MESSAGE && !call->pipe && call->body->len <= MESSAGE_LARGE)
        list_append(&gate->quick, &call->quick_node);
    run(call);
}

const struct call_runner phase_runner = {run, end_early, may_send};
