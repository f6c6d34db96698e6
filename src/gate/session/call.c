// Owns calls as objects, and the delivery of their messages to the callers: the answer, and notifications before it.
//
// An answer goes to the caller's connection, to the stream of the call if it has one by then, or to the batch that contains the call.
// A batch gathers the answers of its parts until it has a stream.
#include "base/check.h"
#include "base/scan.h"
#include "room.h"
#include <inttypes.h>

struct call *call_new(struct gate *gate)
{
    struct arena arena = {.store = &gate->arenas};
    struct call *call = arena_alloc(&arena, sizeof *call);
    call->gate = gate;
    call->arena = arena;
    return call;
}

void call_free(void *object)
{
    struct call *call = object;
    struct arena arena = call->arena;  // the call is in it
    pieces_release(&call->batch);
    buf_release(&call->error_data);
    buf_release(&call->text);
    blob_unref(call->answer);
    stream_unref(call->stream);
    secret_release(&call->caller_token);
    identity_unref(call->identity);
    tenant_unref(call->tenant);
    config_chains_unref(call->chains);
    policy_unref(call->policy);
    arena_release(&arena);
}

// ---- phases and states ----------------------------------------------------------------------

void call_resume(struct call *call)
{
    list_remove(&call->wait_node);
    call->gate->runner->run(call);
}

void call_set_phase(struct call *call, size_t phase)
{
    CHECK(phase > call->phase);
    call->phase = phase;
}

void call_set_state(struct call *call, enum call_state state)
{
    CHECK(state > call->state);
    call->state = state;
}

void call_set_batch(struct call *call, enum batch_state state)
{
    CHECK(state == call->batch_state + 1);
    call->batch_state = state;
}

bool call_is_open(const struct call *call) { return call->state < CALL_ENDING; }

bool call_is_allowed(const struct call *call) { return call->decision.verdict == VERDICT_ALLOW; }

// While the gateway stops, it accepts only messages that belong to calls in flight: answers and notifications of callers, and the
// resumption of streams.
bool call_comes_too_late(struct call *call)
{
    bool begins = call->op == ARRIVAL_MESSAGE  ? call->message.kind == MESSAGE_REQUEST
                  : call->op == ARRIVAL_LISTEN ? !call->last_event_id.at
                                               : call->op == ARRIVAL_PIPE;
    return call->gate->state != GATE_OPEN && !call->in_turn && begins &&
           !err_set(&call->err, ERR_SHUTTING_DOWN, "new calls are not accepted during the shutdown");
}

void call_give_up_row(struct call *call)
{
    list_remove(&call->row.node);
    call_resume(call);
}

void call_end_silently(struct call *call, const char *reason)
{
    struct err why;
    (void)err_set(&why, ERR_CANCELLED, "%s", reason);
    call->gate->runner->end(call, &why, true);
}

void call_break_off(struct call *call, enum err_code code, const char *reason)
{
    struct err why;
    (void)err_set(&why, code, "%s", reason);
    call->gate->runner->end(call, &why, false);
}

void call_set_scope(struct call *call, struct scope *scope)
{
    CHECK(!call->scope);
    call->scope = scope;
    if (scope)
        scope->refs++;
}

void call_join_session(struct call *call, struct session *joined)
{
    call->session = joined;
    call_set_scope(call, joined->scope);
    list_append(&joined->calls, &call->session_node);
    joined->call_count++;
    joined->used_ms = loop_now(call->gate->loop);
}

struct call *call_of_request(const struct link *link, const struct upstream_request *request)
{
    struct call *call =
        request->may_send == link->gate->runner->may_send ? request->arg : NULL;  // only requests of calls have it
    return call && call->link == link && list_linked(&call->link_node) ? call : NULL;
}

// ---- results of phases and methods -----------------------------------------------------------

enum phase_result call_missing(struct call *call, enum err_code code)
{
    (void)err_set(&call->err, code, "\"%.*s\"", (int)scan_cut(call->target, 200), call->target.at);
    return PHASE_NEXT;
}

// Refuses the call for now: the error contains the time after which the caller may retry.
enum phase_result call_put_off(struct call *call, int64_t retry_ms)
{
    call->retry_ms = retry_ms;
    buf_clear(&call->error_data);
    buf_put_text(&call->error_data, "\"retryAfterMs\":");
    buf_put_int(&call->error_data, retry_ms);
    return PHASE_FAIL;
}

bool call_within_session(struct call *call)
{
    if (call->message.kind != MESSAGE_REQUEST ||
        (int64_t)call->session->call_count <= call->gate->config->limits.session_calls)
        return true;
    (void)err_set(&call->err, ERR_LIMITED,
                  "%zu calls are in flight in this session (limits.session_calls = %" PRId64 ")",
                  call->session->call_count, call->gate->config->limits.session_calls);
    (void)call_put_off(call, SESSION_RETRY_MS);
    return false;
}

bool call_text_param(struct call *call, const char *in, const char *name, struct span *out)
{
    struct span raw;
    if (!params_find(&call->params, in, name, &raw) || !scan_is_string(raw))
        return false;
    if (!memchr(raw.at, '\\', raw.len)) {  // without escapes it need not be decoded
        *out = arena_span(&call->arena, span_make(raw.at + 1, raw.len - 2));
        return true;
    }
    struct buf text = {0};
    scan_decode(raw, &text);
    *out = arena_span(&call->arena, buf_span(&text));
    buf_release(&text);
    return true;
}

struct buf *call_begin_result(struct call *call)
{
    buf_put_text(&call->text, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_put_span(&call->text, call->message.id);
    buf_put_text(&call->text, ",\"result\":");
    return &call->text;
}

// ---- the answer -----------------------------------------------------------------------------

size_t call_answer_len(const struct call *call) { return call->answer ? call->answer->len : call->text.len; }

struct blob *call_take_batch(struct call *call)
{
    buf_put_char(&call->batch.tail, ']');
    return pieces_take(&call->batch);
}

static struct blob *take_answer(struct call *call)
{
    struct blob *answer = call->answer ? call->answer : blob_take(&call->text);
    call->answer = NULL;
    blob_hold(answer, &call->text_held, call->text_held.bytes);
    return answer;
}

static void to_parent(struct call *call)
{
    struct call *parent = call->parent;
    struct pieces *batch = &parent->batch;
    if (parent->stream && call_answer_len(call)) {
        stream_answer(parent->stream, take_answer(call));
    } else if (call_answer_len(call)) {
        buf_put_char(&batch->tail, pieces_len(batch) ? ',' : '[');
        if (!call->answer) {
            message_flatten(call->text.at, call->text.len);  // it may become a part of a larger message
            buf_put_span(&batch->tail, buf_span(&call->text));
        } else {
            pieces_share_all(batch, call->answer);
        }
        budget_hand_over(&call->text_held, &parent->text_held);
    }
    if (--parent->parts_left == 0)
        call_resume(parent);
}

void call_deliver(struct call *call)
{
    if (call->parent) {
        to_parent(call);
    } else if (call->arrival) {
        struct arrival *arrival = call->arrival;
        bool failed = call->err.code != ERR_NONE;
        struct answer answer = {.status = failed                  ? err_http_status(call->err.code)
                                          : call_answer_len(call) ? 200
                                                                  : 202,
                                .code = call->err.code,
                                .body = call->text,
                                .held = &call->text_held,
                                .large = call->answer,
                                .retry_ms = call->retry_ms};
        call->text = (struct buf){0};
        call->answer = NULL;
        call->arrival = NULL;
        arrival->call = NULL;
        if (call->op == ARRIVAL_END && !failed)
            answer.status = 200;
        if (call->new_session && !failed)
            answer.session_id = call->session->id;
        if (failed && call->message.kind != MESSAGE_REQUEST && answer.status == 200)
            answer.status = 202;  // the error belongs to a message without an answer
        if (call->silent) {
            // The caller cancelled: it gets an event stream that ends without an answer.
            struct stream *empty = stream_new(0, false, &(struct stream_limits){.bytes = 1, .events = 1});
            stream_end(empty);
            arrival->ops->stream(arrival, empty, NULL);
            stream_unref(empty);
            buf_release(&answer.body);
        } else {
            arrival->ops->answer(arrival, &answer);
        }
    } else if (call->stream && call_answer_len(call)) {
        stream_answer(call->stream, take_answer(call));
    }  // otherwise the caller has disconnected
    if (call->stream && !call->pipe && !call->parent) {
        if (call->session)
            session_stream_done(call->session, call->stream);
        stream_end(call->stream);
    }
}

// ---- before the answer ----------------------------------------------------------------------

void call_open_stream(struct call *call)
{
    if (call->parent) {
        call_open_stream(call->parent);
        return;
    }
    struct arrival *arrival = call->arrival;
    if (call->stream || !arrival)
        return;
    list_remove(&call->quick_node);
    call->stream = stream_ref(session_stream_new(call->session));
    call->arrival = NULL;
    arrival->call = NULL;
    if (call->session->revision >= REVISION_2025_11_25)
        stream_prime(call->stream);
    if (pieces_len(&call->batch)) {  // the answers of a batch that were gathered before the stream was opened
        struct blob *gathered = call_take_batch(call);
        blob_hold(gathered, &call->text_held, call->text_held.bytes);
        stream_push(call->stream, gathered);
    }
    arrival->ops->stream(arrival, call->stream, NULL);
}

void call_tell(struct call *call, struct blob *message)
{
    call_open_stream(call);
    struct call *outer = call->parent ? call->parent : call;
    if (outer->stream)
        stream_push(outer->stream, message);
    else
        session_tell(call->session, message);
}
