// THE PHASE TABLE. Every call walks it from top to bottom; read this file first.
//
//   receive       parse the message, unless it is large     → 400 for what is no JSON-RPC
//   authenticate  credentials → identity; profile           → 401, 404, 429 after too many
//   session       find or open the session; parse a large   → 400, 404
//                 message (waits here); split batches
//   route         which server, what it calls the thing     → unknown tool, server unavailable
//   authorize     may this identity do it                   → 403 in-band
//   limit         is there room                             → 429, 503
//   dispatch      do it here or send it to the server       (waits here)
//   shape         the answer as this caller should see it
//   record        one line for every call, whatever came of it (waits here if the audit is required)
//
// A phase returns NEXT, WAIT, REPLY or FAIL and never calls another. The runner below is the only code
// that moves a call. Invariants, checked in every build: dispatch runs only after authorize said yes for this very
// call under the policy in force; record runs exactly once for each call, also for a denial, a timeout or a vanished caller.
// A call that waits after that (for its server to start, for a token, for a connection) is authorized once more before
// anything is sent, if a policy changed meanwhile (call_still_allowed(), tests/e2e/inforce.test.mjs).
// Policy is asked before existence is told: a name nobody has is authorized like any other.
#include "admission.h"
#include "auth/policy_uri.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/scan.h"
#include "call.h"
#include "hosted.h"
#include "reading.h"
#include <inttypes.h>
#include <stdio.h>

static enum phase_result receive(struct call *call);
static enum phase_result authenticate(struct call *call);
static enum phase_result session(struct call *call);
static enum phase_result route(struct call *call);
static enum phase_result authorize(struct call *call);
static enum phase_result limit(struct call *call);
static enum phase_result dispatch(struct call *call);
static enum phase_result shape(struct call *call);
static enum phase_result record(struct call *call);

static const struct phase {
    const char *name;
    enum phase_result (*run)(struct call *call);
} phases[] = {
    {"receive", receive},     {"authenticate", authenticate},
    {"session", session},     {"route", route},
    {"authorize", authorize}, {"limit", limit},
    {"dispatch", dispatch},   {"shape", shape},
    {"record", record},
};

#define SESSION_RETRY_MS 1000
#define VERSION_SHOWN 40  // bytes

enum { PHASE_ROUTE = 3, PHASE_SHAPE = 7, PHASES = sizeof phases / sizeof *phases };

static void finish(struct call *call);

// ---- the runner -----------------------------------------------------------------------------

static void run(struct call *call)
{
    while (call->phase < PHASES) {
        loop_note(call->gate->loop, phases[call->phase].name,
                  call->link ? upstream_server(call->link->upstream)->name : NULL);
        switch (phases[call->phase].run(call)) {
        case PHASE_NEXT: call->phase++; break;
        case PHASE_WAIT: return;
        case PHASE_REPLY: call->phase = call->phase < PHASE_SHAPE ? PHASE_SHAPE : call->phase + 1; break;
        case PHASE_FAIL:
            CHECK(call->err.code != ERR_NONE);
            call->phase = call->phase < PHASE_SHAPE ? PHASE_SHAPE : call->phase + 1;
            break;
        }
    }
    finish(call);
}

void call_resume(struct call *call)
{
    list_remove(&call->wait_node);
    run(call);
}

// ---- receive --------------------------------------------------------------------------------

// What is large is read in the phase `session`: once it is known that the caller may send it.
static enum phase_result receive(struct call *call)
{
    return call->op != ARRIVAL_MESSAGE || reading_begin(call) ? PHASE_NEXT : PHASE_FAIL;
}

// ---- authenticate ---------------------------------------------------------------------------

static void resume_call(void *arg) { call_resume(arg); }

// Only now is it known whose profiles count: those of other tenants do not exist.
static enum phase_result find_profile(struct call *call)
{
    struct span name = call->profile_name;
    if (!name.at || (call->profile = profile_find(call->tenant->profiles, name)))
        return PHASE_NEXT;
    return (enum phase_result)err_set(&call->err, ERR_NO_PROFILE, "\"%.*s\"", name.len > 64 ? 64 : (int)name.len,
                                      name.at);
}

// Refused for now: the caller is told when to come back.
static enum phase_result put_off(struct call *call, int64_t retry_ms)
{
    call->retry_ms = retry_ms;
    buf_clear(&call->error_data);
    buf_put_text(&call->error_data, "\"retryAfterMs\":");
    buf_put_int(&call->error_data, retry_ms);
    return PHASE_FAIL;
}

static enum phase_result authenticate(struct call *call)
{
    struct gate *gate = call->gate;
    struct admission admission = {
        .credentials = &call->credentials, .session_id = call->session_id, .wait = &call->auth_wait};
    call->auth_wait.resume = resume_call;
    call->auth_wait.arg = call;
    enum admission_verdict verdict = admission_ask(gate, &admission);
    call->identity = admission.identity;
    call->tenant = admission.tenant;
    if (verdict == ADMISSION_WAIT && gate->closing)
        return (enum phase_result)err_set(&call->err, ERR_SHUTTING_DOWN,
                                          "shutting down before authentication finished");
    if (verdict != ADMISSION_REFUSED && call->op == ARRIVAL_UNREAD)
        return (enum phase_result)err_set(&call->err, ERR_AUTH_UNAVAILABLE,
                                          "request body too large for an unauthenticated caller");
    if (verdict == ADMISSION_WAIT)
        return PHASE_WAIT;
    if (verdict == ADMISSION_REFUSED) {
        call->err = admission.err;
        return admission.err.code == ERR_AUTH_LIMITED ? put_off(call, admission.retry_ms) : PHASE_FAIL;
    }
    if (call->arrival) {
        call->arrival->authenticated = true;
        gate_name_arrival(call->arrival, call->identity);
    }
    loan_keep(call);
    return find_profile(call);
}

// ---- session --------------------------------------------------------------------------------

static void join_session(struct call *call, struct session *joined)
{
    call->session = joined;
    call->scope = joined->scope;
    list_append(&joined->calls, &call->session_node);
    joined->call_count++;
    joined->used_ms = loop_now(call->gate->loop);
}

static enum phase_result open_session(struct call *call)
{
    struct gate *gate = call->gate;
    if (!session_room(gate, call->identity, &call->err))
        return PHASE_FAIL;
    call->new_session = true;
    join_session(call, session_new(gate, call->identity, call->op == ARRIVAL_PIPE));
    call->session->profile = call->profile;
    return memory_hold_call(call) ? PHASE_NEXT : PHASE_FAIL;
}

// While the gateway stops it takes only what belongs to calls in flight: what their callers answer and tell, and those
// who come back for an answer.
static bool comes_too_late(struct call *call)
{
    bool begins = call->op == ARRIVAL_MESSAGE  ? call->message.kind == MESSAGE_REQUEST
                  : call->op == ARRIVAL_LISTEN ? !call->last_event_id.at
                                               : call->op == ARRIVAL_PIPE;
    return call->gate->closing && !call->in_turn && begins && !err_set(&call->err, ERR_SHUTTING_DOWN, "no new calls");
}

static struct call *part_new(struct call *batch, size_t at)
{
    struct call *part = call_new(batch->gate);
    part->parent = batch;
    part->op = ARRIVAL_MESSAGE;
    part->identity = identity_ref(batch->identity);
    part->tenant = batch->tenant;
    part->pipe = batch->pipe;
    part->started_us = batch->started_us;
    snprintf(part->request_id, sizeof part->request_id, "%s", batch->request_id);
    list_append(&batch->gate->calls, &part->node);
    join_session(part, batch->session);
    reading_take_part(batch, at, part);
    if (part->err.code)
        ask_on_invalid(part->session, &part->message);
    bool over = part->err.code || !memory_hold_call(part) || comes_too_late(part);
    part->phase = over ? PHASE_SHAPE : PHASE_ROUTE;
    return part;
}

// The parts of a batch go on from `route`; this call waits for them and gathers their answers.
static enum phase_result split_batch(struct call *call)
{
    size_t count = reading_count(call);
    if (call->session->revision != REVISION_2025_03_26 && call->session->revision != REVISION_2024_11_05)
        return (enum phase_result)err_set(&call->err, ERR_INVALID_REQUEST, "batches ended with 2025-03-26");
    // Its decoded name counts, however it is written: a session that lives must not begin again.
    if (reading_has(call, METHOD_INITIALIZE))
        return (enum phase_result)err_set(&call->err, ERR_INVALID_REQUEST, "initialize must not be in a batch");
    if (count == 0 || (int64_t)count > call->gate->config->limits.batch)
        return (enum phase_result)err_set(&call->err, ERR_INVALID_REQUEST, "a batch of %zu messages", count);
    call->split = true;
    call->parts_left = count + 1;
    for (size_t i = 0; i < count; i++)
        run(part_new(call, i));
    if (--call->parts_left == 0)
        return PHASE_REPLY;
    return PHASE_WAIT;
}

// Who asks on and on and does not read the answers would have them all kept here. Not on stdio: there it harms itself alone.
static bool reads_too_little(const struct call *call, const struct session *on)
{
    bool asks = call->op == ARRIVAL_MESSAGE && call->message.kind != MESSAGE_NOTIFICATION &&
                call->message.kind != MESSAGE_RESULT && call->message.kind != MESSAGE_ERROR;
    return asks && call->pipe && call->credentials.peer &&
           stream_unread(on->standalone) > (size_t)call->gate->config->limits.stream_buffer;
}

static enum phase_result find_session(struct call *call)
{
    struct session *found = session_find(call->gate, call->session_id);
    if (!found && call->gate->closed_down)
        return (enum phase_result)err_set(&call->err, ERR_SHUTTING_DOWN, "all sessions have ended");
    if (!found || !identity_same(found->identity, call->identity) || found->pipe != call->pipe ||
        found->profile != call->profile)
        return (enum phase_result)err_set(&call->err, ERR_UNKNOWN_SESSION,
                                          "session is not known, or not this caller's");
    reach_renew(found, call->identity);
    join_session(call, found);
    loan_begin(call);
    return memory_hold_call(call) ? PHASE_NEXT : PHASE_FAIL;
}

// The revision that a request names in its header, or in its _meta as from 2026-07-28 on, if the gateway does not speak
// it.
static struct span unknown_version(const struct call *call)
{
    struct span meta, raw, said = call->version;
    if (said.at && !revision_parse(said))
        return said;
    bool has_meta =
        params_find(&call->params, NULL, "_meta", &meta) ||
        (call->method == METHOD_UNKNOWN && call->message.params.at && scan_find(call->message.params, "_meta", &meta));
    if (!has_meta || !scan_is_object(meta) || !scan_find(meta, "io.modelcontextprotocol/protocolVersion", &raw) ||
        !scan_is_string(raw))
        return (struct span){0};
    said = span_make(raw.at + 1, raw.len - 2);
    return revision_parse(said) ? (struct span){0} : said;
}

// The error lists the versions that the gateway speaks, from which a newer client finds out how to begin. With
// initialize the version is negotiated.
static bool check_version(struct call *call)
{
    struct span said = unknown_version(call);
    if (!said.at || call->method == METHOD_INITIALIZE)
        return true;
    said.len = said.len > VERSION_SHOWN ? VERSION_SHOWN : said.len;
    buf_clear(&call->error_data);
    buf_put_text(&call->error_data, "\"supported\":[");
    for (int i = REVISION_LATEST; i > REVISION_NONE; i--)
        buf_printf(&call->error_data, "\"%s\"%s", revision_text((enum revision)i), i > REVISION_NONE + 1 ? "," : "");
    buf_put_text(&call->error_data, "],\"requested\":");
    scan_encode_lossy(said, &call->error_data);
    return err_set(&call->err, ERR_BAD_VERSION, "protocol version %.*s", SPAN_ARG(said));
}

// May the message come now, in this session?
static enum phase_result check_message(struct call *call)
{
    const struct session *on = call->session;
    bool initialize = call->method == METHOD_INITIALIZE && call->message.kind == MESSAGE_REQUEST;
    if (!on)
        return initialize && !call->pipe ? open_session(call)
                                         : (enum phase_result)err_set(&call->err, ERR_NO_SESSION, "no Mcp-Session-Id");
    if (initialize && on->state != SESSION_NEW)
        return (enum phase_result)err_set(&call->err, ERR_ALREADY_INITIALIZED, "second initialize");
    if (!initialize && on->state == SESSION_NEW && call->op == ARRIVAL_MESSAGE && call->method != METHOD_PING)
        return (enum phase_result)err_set(&call->err, ERR_NOT_INITIALIZED, "a session begins with initialize");
    if (reads_too_little(call, on)) {
        (void)err_set(&call->err, ERR_TOO_MANY, "the caller does not read its answers");
        return put_off(call, SESSION_RETRY_MS);
    }
    return PHASE_NEXT;
}

// The HTTP side of a message for a pipe is done; its answer goes to the pipe.
static void move_to_pipe(struct call *call)
{
    struct arrival *arrival = call->arrival;
    struct answer accepted = {.status = 202};
    call->stream = stream_ref(call->session->standalone);
    call->arrival = NULL;
    if (arrival) {
        arrival->call = NULL;
        arrival->ops->answer(arrival, &accepted);
    }
}

// A request out of order is answered on the pipe too: over HTTP+SSE, clients that probe before `initialize` take a
// status of 400 for the end of the connection (tests/e2e/python.test.mjs).
static bool is_out_of_order(const struct call *call)
{
    return call->message.kind == MESSAGE_REQUEST &&
           (call->err.code == ERR_NOT_INITIALIZED || call->err.code == ERR_ALREADY_INITIALIZED);
}

// So is one that names an unknown revision in its params; in a header it is a matter of HTTP.
static enum phase_result refuse_version(struct call *call)
{
    struct err refusal = call->err;
    if (call->pipe && call->message.kind == MESSAGE_REQUEST && !call->version.at && call->session_id.at &&
        (call->session || find_session(call) != PHASE_FAIL))
        move_to_pipe(call);
    call->err = refusal;
    return PHASE_FAIL;
}

static enum phase_result session(struct call *call)
{
    if (call->split)
        return PHASE_REPLY;  // resumed: all parts of the batch are done
    if (comes_too_late(call))
        return PHASE_FAIL;
    if (!check_version(call))
        return refuse_version(call);
    if (call->op == ARRIVAL_PIPE)
        return open_session(call);
    if (!call->session && call->session_id.at && find_session(call) == PHASE_FAIL)
        return PHASE_FAIL;
    enum phase_result read = reading_wait(call);
    if (read == PHASE_FAIL)
        ask_on_invalid(call->session, &call->message);
    if (read != PHASE_NEXT)
        return read;
    if (comes_too_late(call))
        return PHASE_FAIL;
    enum phase_result checked = check_message(call);
    if (call->pipe && call->session && (checked != PHASE_FAIL || is_out_of_order(call)))
        move_to_pipe(call);
    if (checked == PHASE_FAIL)
        return PHASE_FAIL;
    CHECK(call->session);
    return call->batched ? split_batch(call) : PHASE_NEXT;
}

// ---- route, authorize, limit, dispatch ------------------------------------------------------

static enum phase_result route(struct call *call) { return call_route(call); }

// The error names the canonical spelling. It gives nothing away: it follows from the URI alone.
static void put_canonical(struct call *call, struct buf *text)
{
    enum policy_kind kind;
    struct buf uri = {0};
    (void)call_permit(call, &kind);
    if (policy_uri_put_canonical(call->target, kind == POLICY_TEMPLATE, &uri)) {
        buf_printf(text, ": the canonical spelling is %.*s", SPAN_ARG(buf_span(&uri)));
        buf_put_text(&call->error_data, ",\"canonical\":");
        scan_encode(buf_span(&uri), &call->error_data);
    }
    buf_release(&uri);
}

// The caller is told which rule it was and what for (X19), and of no other one.
static enum phase_result deny(struct call *call)
{
    const struct policy_rule *rule = call->decision.rule;
    struct buf text = {0};
    buf_printf(&text, "%s (rule %s)", err_text(ERR_DENIED), call->decision.by);
    buf_clear(&call->error_data);
    buf_put_text(&call->error_data, "\"rule\":");
    scan_encode(span_of(call->decision.by), &call->error_data);
    if (rule) {
        buf_printf(&text, ": %s", rule->description);
        buf_put_text(&call->error_data, ",\"description\":");
        scan_encode(span_of(rule->description), &call->error_data);
    }
    if (strcmp(call->decision.by, "uri_not_canonical") == 0)
        put_canonical(call, &text);
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
    return (enum phase_result)err_set(&call->err, ERR_DENIED, "by %s", call->decision.by);
}

// A name nobody has is decided like one that no rule is about: a denial tells nothing of what exists.
static bool ask_policy(struct call *call, enum policy_kind kind)
{
    struct policy_question question = {call->identity, call->link ? upstream_server(call->link->upstream)->name : "",
                                       kind, call->target, NULL};
    json_t *args;
    if (!arguments_read(call, &question, &args))
        return false;
    question.args = args;
    bool open = policy_is_open(call->policy);
    call->decision = call->link || open ? policy_decide(call->policy, &question)
                                        : (struct policy_decision){VERDICT_DENY, NULL, "default"};
    const struct policy_rule *shadow = call->link ? policy_shadow(call->policy, &question) : NULL;
    if (shadow)
        log_info("shadow rule matches", LOG_STR("request", call->request_id), LOG_STR("rule", shadow->id),
                 LOG_STR("effect", shadow->effect ? "allow" : "deny"));
    json_decref(args);
    return true;
}

// A task belongs to its owner while the policy lets the owner use anything of its server.
static bool owner_may(const struct call *call)
{
    return !call->link || policy_reaches(call->policy, call->identity, upstream_server(call->link->upstream)->name);
}

// By the policy in force now. What a denial points to belongs to the policy, so the call keeps it.
static enum phase_result authorize(struct call *call)
{
    enum policy_kind kind = POLICY_TOOL;
    policy_unref(call->policy);
    call->policy = policy_ref(call->tenant->policy);
    call->judged_epoch = call->gate->policy_epoch;
    call->authorized = false;
    enum permit permit = call_permit(call, &kind);
    call->decision =
        (struct policy_decision){VERDICT_DENY, NULL, permit == PERMIT_NOBODY ? "builtin:method" : "default"};
    if (permit == PERMIT_POLICY) {
        if (!ask_policy(call, kind))
            return PHASE_FAIL;
    } else if (permit == PERMIT_ANYBODY || (permit == PERMIT_OWNER && owner_may(call))) {
        call->decision = (struct policy_decision){VERDICT_ALLOW, NULL, "builtin:method"};
    }
    call->authorized = call->decision.verdict == VERDICT_ALLOW;
    if (permit == PERMIT_NOBODY)
        return PHASE_FAIL;  // a method that nobody has: route said so
    if (!call->authorized)
        return deny(call);
    return call->err.code ? PHASE_FAIL : PHASE_NEXT;  // what route found missing is said only now
}

bool call_still_allowed(struct call *call)
{
    return call->judged_epoch == call->gate->policy_epoch || authorize(call) == PHASE_NEXT;
}

// What goes to a server: the use of a tool, a prompt, a resource. Lists and session housekeeping are not counted, nor
// is what belongs to a call that was (tasks), nor giving something up.
static bool within_rates(struct call *call)
{
    enum policy_kind kind;
    if (call_permit(call, &kind) != PERMIT_POLICY || call->method == METHOD_RESOURCES_UNSUBSCRIBE)
        return true;
    struct limit *limits = call->tenant->limit;
    if (!limits)
        return true;
    struct limit_call counted = {call->identity, upstream_server(call->link->upstream)->name,
                                 call->method == METHOD_TOOLS_CALL ? call->target : (struct span){0}};
    return limit_enter(limits, &counted, loop_now(call->gate->loop), &call->limits, &call->err);
}

bool call_within_session(struct call *call)
{
    if (call->message.kind != MESSAGE_REQUEST ||
        (int64_t)call->session->call_count <= call->gate->config->limits.session_calls)
        return true;
    (void)err_set(&call->err, ERR_LIMITED, "%zu calls in flight in this session", call->session->call_count);
    (void)put_off(call, SESSION_RETRY_MS);
    return false;
}

static enum phase_result limit(struct call *call)
{
    if (call->gate->audit && !audit_healthy(call->gate->audit))
        return (enum phase_result)err_set(&call->err, ERR_TOO_MANY, "the audit log cannot be written");
    if (!call_within_session(call))
        return PHASE_FAIL;
    return within_rates(call) ? PHASE_NEXT : put_off(call, call->limits.retry_ms);
}

static enum phase_result dispatch(struct call *call)
{
    CHECK(call->dispatched || (call->authorized && call->judged_epoch == call->gate->policy_epoch));
    loop_timer_stop(call->gate->loop, &call->timer);  // the wait for lists, if there was one
    return call_dispatch(call);
}

// ---- shape ----------------------------------------------------------------------------------

static void forget_answer(struct call *call)
{
    buf_clear(&call->text);
    blob_unref(call->answer);
    call->answer = NULL;
}

struct buf *call_begin_result(struct call *call)
{
    buf_put_text(&call->text, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_put_span(&call->text, call->message.id);
    buf_put_text(&call->text, ",\"result\":");
    return &call->text;
}

// What a server answered, translated while it is copied; of a large answer, shaping.c has made the text.
static void shape_reply(struct call *call)
{
    if (call->answer)
        return;
    struct shape from = shape_of(call->scope, call->link, call->identity, call->method);
    struct buf *text = &call->text;
    if (call->reply->error.at) {
        struct buf error = {0}, later = {0};
        struct span said =
            shape_error_from_server(&from, call->reply->error, &error) ? buf_span(&error) : call->reply->error;
        call->retry_ms = call->reply->retry_after_ms;
        if (call->retry_ms && shape_put_retry(said, call->retry_ms, &later))
            said = buf_span(&later);
        message_put_raw_error(text, call->message.id, said);
        buf_release(&error);
        buf_release(&later);
        return;
    }
    buf_reserve(text, call->reply->result.len + call->message.id.len + 64);
    (void)call_begin_result(call);
    if (!shape_from_server(&from, call->reply->result, text))
        buf_put_span(text, call->reply->result);
    buf_put_char(text, '}');
}

// The server has said when to try again. Models often see nothing of an error but its message, so that says it as well.
static void put_off_by_server(struct call *call)
{
    struct buf text = {0};
    int64_t retry_ms = call->err.retry_after_ms;
    (void)put_off(call, retry_ms);
    if (call->error_text)
        return;
    buf_printf(&text, "%s; try again in %" PRId64 " s", err_text(call->err.code), (retry_ms + 999) / 1000);
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
}

static void shape_error(struct call *call)
{
    forget_answer(call);
    if (call->err.code == ERR_MEMORY)
        (void)put_off(call, MEMORY_RETRY_MS);
    else if (call->err.retry_after_ms && !call->error_data.len)
        put_off_by_server(call);
    if (call->message.kind == MESSAGE_REQUEST || call->message.kind == MESSAGE_INVALID)
        message_put_error_text(&call->text, call->message.id, call->err.code, call->error_text,
                               buf_span(&call->error_data));
}

// It is kept until its caller has read it.
static enum phase_result count_answer(struct call *call)
{
    if (!call->session || memory_hold_answer(call))
        return PHASE_NEXT;
    buf_release(&call->text);
    shape_error(call);
    return PHASE_FAIL;
}

// Makes the text of the answer: the JSON-RPC message, or nothing where none is due.
static enum phase_result shape(struct call *call)
{
    bool request = call->message.kind == MESSAGE_REQUEST;
    if (call->silent)
        forget_answer(call);
    else if (call->err.code) {
        if (request && call->err.code == ERR_LOGIN) {
            loan_tell(call);
            if (hosted_tell(call))
                return PHASE_WAIT;
        }
        shape_error(call);
    } else if (pieces_len(&call->batch))
        call->answer = call_take_batch(call);
    else if (call->reply)
        shape_reply(call);
    else if (call->text.len)
        buf_put_char(&call->text, '}');  // a result begun by its method
    else if (request)
        message_put_result(&call->text, call->message.id, span_of("{}"));
    return count_answer(call);
}

// ---- record ---------------------------------------------------------------------------------

// What it holds of others; only its answer is left.
static void let_go(struct call *call)
{
    dispatch_abandon(call, "the call is over");  // if it is still out
    hosted_untell(call);
    limit_leave(&call->limits);
    loan_end(call);
    loop_timer_stop(call->gate->loop, &call->timer);
    list_remove(&call->link_node);
    call->reply = NULL;
    call->link = NULL;
}

// An error stays what it is; it gives nothing away.
static enum phase_result withhold(struct call *call)
{
    if (call->err.code || call->silent)
        return PHASE_NEXT;
    log_warn("answer withheld: the call could not be recorded", LOG_STR("request", call->request_id));
    (void)err_set(&call->err, ERR_UNRECORDED, "the audit cannot be written");
    shape_error(call);
    return PHASE_FAIL;
}

static enum phase_result record(struct call *call)
{
    static const char *const ops[] = {"message", "listen", "pipe", "end", "message"};
    if (call->recorded)  // resumed: its row is written, or will not be in time
        return call->row.written ? PHASE_NEXT : withhold(call);
    call->recorded = true;
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
           LOG_STR("decision", call->authorized    ? "allow"
                               : call->decision.by ? "deny"
                                                   : "-"),
           LOG_STR("by", call->decision.by ? call->decision.by : "-"), LOG_STR("reason", err_reason(call->err.code)),
           LOG_STR("detail", trouble ? call->err.detail : ""), LOG_INT("us", clock_now_us() - call->started_us));
    let_go(call);
    return result == PHASE_FAIL ? withhold(call) : result;
}

// ---- the end ---------------------------------------------------------------------------------

static void finish(struct call *call)
{
    struct gate *gate = call->gate;
    CHECK(call->recorded);
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
            session_end(call->session);
        else
            session_settle(call->session);
    }
    gate_settle(gate);
    loop_reap(gate->loop, call, call_free);
}

static void end_early(struct call *call, const struct err *why, bool silent);

// The parts of a batch first; with the last of them the batch itself is over.
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

bool call_is_open(const struct call *call) { return !call->recorded && !call->ending; }

void call_give_up_row(struct call *call)
{
    list_remove(&call->row.node);
    call_resume(call);
}

// What it waited for does not come any more.
static void end_early(struct call *call, const struct err *why, bool silent)
{
    if (!call_is_open(call))
        return;
    call->ending = true;
    bool sent = list_linked(&call->link_node);
    dispatch_abandon(call, why->detail);
    if (call->parts_left && end_parts(call, why, silent)) {
        loan_end(call);  // also if the rows of some part are waited for, and the session is not there any more
        return;
    }
    call->silent = silent;
    call->err = *why;
    buf_clear(&call->error_data);
    struct buf text = {0};
    buf_printf(&text, "%s%s", why->detail, sent ? "; the server may have done what was asked" : "");
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
    call->phase = PHASE_SHAPE;
    run(call);
}

void call_end_silently(struct call *call, const char *reason)
{
    struct err why;
    (void)err_set(&why, ERR_CANCELLED, "%s", reason);
    end_early(call, &why, true);
}

void call_break_off(struct call *call, enum err_code code, const char *reason)
{
    struct err why;
    (void)err_set(&why, code, "%s", reason);
    end_early(call, &why, false);
}

void call_start(struct gate *gate, struct arrival *arrival)
{
    struct call *call = call_new(gate);
    call->started_us = clock_now_us();
    call->op = arrival->op;
    call->arrival = arrival;
    call->pipe = arrival->pipe;
    call->credentials = arrival->credentials;
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
