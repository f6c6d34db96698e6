// Owns messages to a server that have no answer: answers to its requests, and notifications.
#include "message.h"
#include "base/scan.h"
#include "mcp/method.h"
#include "transport.h"

void upstream_message_pass(struct upstream *upstream, struct blob *message)
{
    if (upstream->state == UPSTREAM_READY || upstream->state == UPSTREAM_STARTING)
        upstream->transport->send(upstream, message, NULL);
    blob_unref(message);
}

void upstream_message_note_told(struct upstream *upstream)
{
    upstream->told++;
    upstream->told_after = upstream->next_id;
}

void upstream_message_pass_notification(struct upstream *upstream, struct blob *message)
{
    upstream_message_note_told(upstream);
    upstream_message_pass(upstream, message);
}

void upstream_message_notify(struct upstream *upstream, const char *method, struct span params)
{
    struct buf text = {0};
    message_put_notification(&text, method, params);
    upstream_message_pass_notification(upstream, blob_take(&text));
}

void upstream_message_cancelled(struct upstream *upstream, uint64_t id, const char *reason)
{
    struct buf params = {0};
    buf_put_text(&params, "{\"requestId\":");
    buf_put_int(&params, (int64_t)id);
    buf_put_text(&params, ",\"reason\":");
    scan_encode(span_of(reason), &params);
    buf_put_char(&params, '}');
    upstream_message_notify(upstream, method_text(METHOD_CANCELLED), buf_span(&params));
    buf_release(&params);
}

void upstream_message_answer(struct upstream *upstream, struct span id, struct span result)
{
    struct buf text = {0};
    message_put_result(&text, id, result);
    upstream_message_pass(upstream, blob_take(&text));
}

void upstream_message_refuse(struct upstream *upstream, struct span id, int code, const char *reason)
{
    struct buf text = {0}, error = {0};
    buf_printf(&error, "{\"code\":%d,\"message\":", code);
    scan_encode(span_of(reason), &error);
    buf_put_char(&error, '}');
    message_put_raw_error(&text, id, buf_span(&error));
    buf_release(&error);
    upstream_message_pass(upstream, blob_take(&text));
}
