// Owns the phase `record`: one log line and one audit row for every call, with any outcome.
//
// After it the call holds only its answer. If the audit is required, the answer waits for the row.
#include "base/clock.h"
#include "base/log.h"
#include "phase.h"
#include "record.h"

// Releases everything that the call holds, except its answer.
static void let_go(struct call *call)
{
    dispatch_abandon(call, "the call has ended");  // if a request to a server is still open
    login_offer_drop(call);
    limit_leave(&call->limits);
    caller_token_end(call);
    loop_timer_stop(call->gate->loop, &call->timer);
    list_remove(&call->link_node);
    call->reply = NULL;
    call->link = NULL;
}

// Replaces the answer of a call that could not be recorded. An error is not withheld, because it discloses nothing.
static enum phase_result withhold(struct call *call)
{
    if (call->err.code || call->silent)
        return PHASE_NEXT;
    log_warn("answer withheld: the call could not be recorded", LOG_STR("request", call->request_id));
    (void)err_set(&call->err, ERR_UNRECORDED, "the audit log cannot be written");
    phase_shape_error(call);
    return PHASE_FAIL;
}

enum phase_result phase_record(struct call *call)
{
    static const char *const ops[] = {"message", "listen", "pipe", "end", "message"};
    if (call->state == CALL_RECORDED)  // resumed: its row was written, or cannot be written in time
        return call->row.written ? PHASE_NEXT : withhold(call);
    call_set_state(call, CALL_RECORDED);
    enum phase_result result = record_call(call);
    bool trouble = call->err.code != ERR_NONE;
    struct span called = call->message.method;
    called.len = called.len > 64 ? 64 : called.len;
    enum log_level level = trouble && !call->silent ? LOG_INFO : LOG_DEBUG;
    log_at(level, trouble ? "call failed" : "call", LOG_STR("request", call->request_id),
           LOG_SPAN("method", call->message.method.at ? called : span_of(ops[call->op])),
           LOG_STR("tenant", call->identity ? call->identity->tenant : "-"),
           LOG_STR("subject", call->identity ? call->identity->subject : "-"),
           LOG_STR("profile", call->session && call->session->profile ? call->session->profile->name : "-"),
           LOG_STR("server", call->link ? upstream_server(call->link->upstream)->name : "-"),
           LOG_SPAN("target", call->target.at ? call->target : span_of("-")),
           LOG_STR("decision", call_is_allowed(call) ? "allow"
                               : call->decision.by   ? "deny"
                                                     : "-"),
           LOG_STR("by", call->decision.by ? call->decision.by : "-"), LOG_STR("reason", err_reason(call->err.code)),
           LOG_STR("detail", trouble ? call->err.detail : ""), LOG_INT("us", clock_now_us() - call->started_us));
    let_go(call);
    return result == PHASE_FAIL ? withhold(call) : result;
}
