// Owns calls as objects, and the way of their messages to their callers: the answer, and what is said before it.
//
// An answer goes to the caller's connection, to the stream that the call has got meanwhile, or to the batch that the call is a
// part of. A batch gathers the answers of its parts until it has a stream.
#include "call.h"

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
    policy_unref(call->policy);
    arena_release(&arena);
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
            message_flatten(call->text.at, call->text.len);  // it may be a part now
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
            answer.status = 202;  // in-band trouble with something that wants no answer
        if (call->silent) {
            // The caller cancelled: it gets an event stream that ends without an answer.
            struct stream *empty = stream_new(0, false, &(struct stream_limits){.bytes = 1, .events = 1});
            stream_end(empty);
            arrival->ops->stream(arrival, empty, NULL);
            stream_unref(empty);
        } else {
            arrival->ops->answer(arrival, &answer);
        }
    } else if (call->stream && call_answer_len(call)) {
        stream_answer(call->stream, take_answer(call));
    }  // else the caller is gone
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
    if (pieces_len(&call->batch)) {  // what was gathered of a batch before the stream was needed
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
