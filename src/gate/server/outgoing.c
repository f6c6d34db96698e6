// Owns the params of callers on their way to a server: unchanged, except for ids that differ between caller and server.
//
// A server may take a message with a related task (2025-11-25) for a part of that task, so only the owner of the task may name it:
// the id is sealed, as in tasks/get, and the server gets its own id. A server with only one caller may get any other id as well.
#include "base/mem.h"
#include "base/scan.h"
#include "room.h"
#include <stdlib.h>

// Sorts by the position in the params.
static void sort(struct outgoing_swap *swaps, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && swaps[k].old.at < swaps[k - 1].old.at; k--) {
            struct outgoing_swap later = swaps[k - 1];
            swaps[k - 1] = swaps[k];
            swaps[k] = later;
        }
}

bool outgoing_task(struct call *call, const struct link *link, struct outgoing_swap *swap)
{
    struct span raw, wrapped;
    struct buf id = {0};
    *swap = (struct outgoing_swap){0};
    if (!params_find(&call->params, PARAMS_RELATED, "taskId", &raw))
        return true;
    bool mine = call_text_param(call, PARAMS_RELATED, "taskId", &wrapped) &&
                task_unwrap(call->session->scope, call->identity, wrapped, &id) == link;
    if (mine)
        *swap = (struct outgoing_swap){raw, arena_span(&call->arena, buf_span(&id)), true};
    buf_release(&id);
    return mine || link->owner;
}

static void put_part(const struct call *call, const char *from, const char *to, struct pieces *out)
{
    struct span part = span_make(from, (size_t)(to - from));
    if (part.len < SHARED_MIN)
        buf_put_span(&out->tail, part);
    else
        pieces_share(out, call->body, part);
}

void outgoing_put(const struct call *call, struct outgoing_swap *swaps, size_t count, struct pieces *out)
{
    struct span params = call->message.params;
    const char *at = params.at;
    sort(swaps, count);
    for (size_t i = 0; i < count; i++) {
        if (!swaps[i].old.at)
            continue;
        put_part(call, at, swaps[i].old.at, out);
        if (swaps[i].text)
            scan_encode(swaps[i].with, &out->tail);
        else
            buf_put_span(&out->tail, swaps[i].with);
        at = swaps[i].old.at + swaps[i].old.len;
    }
    put_part(call, at, params.at + params.len, out);
}

bool outgoing_notify(struct call *call, const struct link *link, struct span old, struct span with)
{
    struct outgoing_swap swaps[2] = {{.old = old, .with = with}};
    struct pieces text = {0};
    if (!outgoing_task(call, link, &swaps[1]))
        return false;
    buf_printf(&text.tail, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":", method_text(call->method));
    outgoing_put(call, swaps, 2, &text);
    buf_put_char(&text.tail, '}');
    upstream_message_pass_notification(link->upstream, pieces_take(&text));
    return true;
}

static void drop_answer(struct upstream_request *request, const struct upstream_reply *reply)
{
    (void)reply;
    loop_reap(request->arg, request, free);  // the rest of the answer's batch is still being delivered
}

void outgoing_unheard(struct link *link, enum method method, struct span params)
{
    struct upstream_request *request = mem_new(struct upstream_request);
    request->on_reply = drop_answer;
    request->arg = link->gate->loop;
    upstream_request_reserve(link->upstream, request);
    upstream_request_send(request, method_text(method), params);
}
