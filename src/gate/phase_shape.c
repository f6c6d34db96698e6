// Owns the phase `shape`: makes the text of the answer for this caller, unless the message has no answer.
#include "base/scan.h"
#include "gate/session/memory.h"
#include "phase.h"
#include <inttypes.h>

static void forget_answer(struct call *call)
{
    buf_clear(&call->text);
    blob_unref(call->answer);
    call->answer = NULL;
}

// Translates the reply of a server while copying it. The text of a large answer was made by shaping.c.
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

// The server has sent a Retry-After. Models often see only the message of an error, so the message contains it, too.
static void put_off_by_server(struct call *call)
{
    struct buf text = {0};
    int64_t retry_ms = call->err.retry_after_ms;
    (void)call_put_off(call, retry_ms);
    if (call->error_text)
        return;
    buf_printf(&text, "%s; try again in %" PRId64 " s", err_text(call->err.code), (retry_ms + 999) / 1000);
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
}

// Puts the time limit and its option into the error: the caller may be able to ask for less, or ask the operator for more time.
static void name_limit(struct call *call)
{
    struct buf text = {0};
    int64_t ms = call->err.option_ms;
    bool seconds = ms % 1000 == 0;
    buf_printf(&text, "%s (%s: %" PRId64 " %s)", err_text(call->err.code), call->err.option, seconds ? ms / 1000 : ms,
               seconds ? "s" : "ms");
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
}

void phase_shape_error(struct call *call)
{
    forget_answer(call);
    if (call->err.code == ERR_MEMORY)
        (void)call_put_off(call, MEMORY_RETRY_MS);
    else if (call->err.retry_after_ms && !call->error_data.len)
        put_off_by_server(call);
    else if (call->err.option && !call->error_text)
        name_limit(call);
    if (call->message.kind == MESSAGE_REQUEST || call->message.kind == MESSAGE_INVALID)
        message_put_error_text(&call->text, call->message.id, call->err.code, call->error_text,
                               buf_span(&call->error_data));
}

// Counts the answer for the budget of the caller, until the caller has read it.
static enum phase_result count_answer(struct call *call)
{
    if (!call->session || memory_hold_answer(call))
        return PHASE_NEXT;
    buf_release(&call->text);
    phase_shape_error(call);
    return PHASE_FAIL;
}

// Makes the text of the answer: the JSON-RPC message, or nothing if the message has no answer.
enum phase_result phase_shape(struct call *call)
{
    bool request = call->message.kind == MESSAGE_REQUEST;
    if (call->silent)
        forget_answer(call);
    else if (call->err.code)
        phase_shape_error(call);
    else if (pieces_len(&call->batch))
        call->answer = call_take_batch(call);
    else if (call->reply)
        shape_reply(call);
    else if (call->text.len)
        buf_put_char(&call->text, '}');  // completes call_begin_result()
    else if (request)
        message_put_result(&call->text, call->message.id, span_of("{}"));
    return count_answer(call);
}
