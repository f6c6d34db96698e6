// Owns the table of methods, and handles each method here or at its server. route.c finds the server.
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pieces.h"
#include "base/scan.h"
#include "gate/session/permit.h"
#include "gate/session/server_runtime.h"
#include "rows.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SUBSCRIPTIONS_MAX 1000

static phase_fn do_ping, do_level, do_list, do_forward, do_subscribe, do_unsubscribe;
static phase_fn do_complete;
static phase_fn on_initialized, on_cancelled, on_progress, on_roots_changed, on_task_status;

// ---- the method table -----------------------------------------------------------------------

static const struct method_row {
    phase_fn *route;  // NULL: no server is concerned
    phase_fn *dispatch;
    bool notification;
} rows[METHODS] = {
    [METHOD_INITIALIZE] = {NULL, initialize_session, false},
    [METHOD_PING] = {NULL, do_ping, false},
    [METHOD_SET_LEVEL] = {NULL, do_level, false},
    [METHOD_TOOLS_LIST] = {route_lists, do_list, false},
    [METHOD_PROMPTS_LIST] = {route_lists, do_list, false},
    [METHOD_RESOURCES_LIST] = {route_lists, do_list, false},
    [METHOD_RESOURCES_TEMPLATES] = {route_lists, do_list, false},
    [METHOD_TOOLS_CALL] = {route_tool, do_forward, false},
    [METHOD_PROMPTS_GET] = {route_prompt, do_forward, false},
    [METHOD_RESOURCES_READ] = {route_resource, do_forward, false},
    [METHOD_RESOURCES_SUBSCRIBE] = {route_resource, do_subscribe, false},
    [METHOD_RESOURCES_UNSUBSCRIBE] = {route_resource, do_unsubscribe, false},
    [METHOD_COMPLETE] = {route_reference, do_complete, false},
    [METHOD_TASKS_GET] = {route_task, do_forward, false},
    [METHOD_TASKS_RESULT] = {route_task, do_forward, false},
    [METHOD_TASKS_CANCEL] = {route_task, do_forward, false},
    [METHOD_TASKS_LIST] = {route_lists, task_list_merged, false},
    [METHOD_INITIALIZED] = {NULL, on_initialized, true},
    [METHOD_CANCELLED] = {NULL, on_cancelled, true},
    [METHOD_PROGRESS] = {NULL, on_progress, true},
    [METHOD_ROOTS_CHANGED] = {NULL, on_roots_changed, true},
    [METHOD_TASK_STATUS] = {NULL, on_task_status, true},
};

static enum phase_result fail_too_long(struct call *call)
{
    const struct params *params = &call->params;
    struct buf text = {0};
    const char *what = *params->too_long ? params->too_long : "the message without `arguments`";
    buf_printf(&text, "Invalid params: %s is longer than %zu bytes", what, params->max);
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
    return call_fail(call, ERR_INVALID_PARAMS, "%s", call->error_text);
}

enum phase_result dispatch_route(struct call *call)
{
    const struct method_row *row = &rows[call->method];
    struct span ambiguous = call->params.ambiguous;
    if (ambiguous.at) {
        (void)err_set(&call->err, ERR_INVALID_PARAMS, "the name of the member %.*s is ambiguous",
                      (int)scan_cut(ambiguous, 64), ambiguous.at);
        call->error_text = "Invalid params: the name of a member contains U+0000, or differs only in case, or by a "
                           "lone surrogate, from a member of this method; use the protocol's spelling";
        return PHASE_FAIL;
    }
    if (call->params.too_long)
        return fail_too_long(call);
    if (call->op != ARRIVAL_MESSAGE || call->message.kind != MESSAGE_REQUEST)
        return PHASE_NEXT;
    if (!row->dispatch || row->notification)
        return call_missing(call, ERR_METHOD_NOT_FOUND);
    return row->route ? row->route(call) : PHASE_NEXT;
}

// ---- dispatch: the session operations -------------------------------------------------------

// "<stream>-<sequence>", both decimal.
static bool parse_event_id(struct span text, unsigned *index, uint64_t *sequence)
{
    uint64_t parts[2] = {0};
    size_t part = 0;
    if (text.len < 3 || text.len > 30)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] == '-' && part == 0 && i > 0 && i + 1 < text.len)
            part++;
        else if (text.at[i] >= '0' && text.at[i] <= '9' && parts[part] < UINT64_MAX / 100)
            parts[part] = parts[part] * 10 + (uint64_t)(text.at[i] - '0');
        else
            return false;
    }
    *index = (unsigned)parts[0];
    *sequence = parts[1];
    return part == 1 && parts[0] <= UINT32_MAX;
}

static void hand_over(struct call *call, struct stream *stream, const char *session_id)
{
    struct arrival *arrival = call->arrival;
    call->arrival = NULL;
    arrival->call = NULL;
    arrival->ops->stream(arrival, stream, session_id);
}

static enum phase_result do_listen(struct call *call)
{
    struct session *session = call->session;
    struct stream *stream = session->standalone;
    unsigned index;
    uint64_t sequence;
    if (call->last_event_id.at) {
        stream = parse_event_id(call->last_event_id, &index, &sequence) ? session_stream_find(session, index) : NULL;
        if (!stream)
            return call_fail(call, ERR_UNKNOWN_EVENT, "the stream of Last-Event-ID does not exist");
        if (!stream_rewind(stream, sequence))
            return call_fail(call, ERR_UNKNOWN_EVENT, "the event of Last-Event-ID is no longer stored");
        if (stream_attached(stream)) {  // the caller noticed the loss of its connection first
            log_info("caller resumed its stream on another connection", LOG_STR("subject", call->identity->subject));
            stream_cut(stream);
        }
    } else if (stream_attached(stream)) {
        return call_fail(call, ERR_STREAM_CONFLICT, "the standalone stream of the session is already open");
    } else if (session->revision >= REVISION_2025_11_25) {
        stream_prime(stream);
    }
    hand_over(call, stream, NULL);
    return PHASE_REPLY;
}

static enum phase_result do_pipe(struct call *call)
{
    hand_over(call, call->session->standalone, call->session->id);
    return PHASE_REPLY;
}

// ---- dispatch: answered here ----------------------------------------------------------------

static enum phase_result do_ping(struct call *call)
{
    (void)call;
    return PHASE_REPLY;
}

static enum phase_result do_level(struct call *call)
{
    struct span raw;
    int level = params_find(&call->params, NULL, "level", &raw) ? level_parse(raw) : -1;
    if (level < 0)
        return call_fail(call, ERR_INVALID_PARAMS, "params.level is not a log level");
    call->session->level = level;
    for (size_t i = 0; i < call->scope->link_count; i++)
        level_set(call->scope->links[i], call->session);
    return PHASE_REPLY;
}

// Appends one item for this caller. The schema of a tool is narrowed if the policy limits its arguments.
static void put_item(struct call *call, enum catalog_kind kind, size_t at, const struct policy_question *question,
                     struct buf *out)
{
    json_t *narrowing = kind == CATALOG_TOOLS ? policy_narrowing(call->tenant->memo, question) : NULL;
    struct buf tool = {0};
    view_render(call->scope->view, kind, at, at + 1, narrowing ? &tool : out);
    if (narrowing)
        narrow_tool(buf_span(&tool), narrowing, out);
    buf_release(&tool);
    json_decref(narrowing);
}

// Appends a page of the items that are visible to this caller, from an index on. Returns the index of the next page.
static size_t put_page(struct call *call, enum catalog_kind kind, size_t from, size_t page, struct buf *out)
{
    struct view *view = call->scope->view;
    size_t count = view_count(view, kind), shown = 0, at = from;
    if (policy_is_open(call->policy)) {
        size_t to = count - from > page ? from + page : count;
        view_render(view, kind, from, to, out);
        return to;
    }
    for (; at < count && shown < page; at++) {
        const struct view_entry *entry = view_entry_at(view, kind, at);
        struct policy_question question = {call->identity, upstream_server(source_upstream(entry->source))->name,
                                           permit_policy_kind(kind), entry->original, NULL};
        if (!policy_visible(call->tenant->memo, &question))
            continue;
        if (shown++)
            buf_put_char(out, ',');
        put_item(call, kind, at, &question, out);
    }
    return at;
}

static enum phase_result do_list(struct call *call)
{
    static const char *const members[] = {"tools", "prompts", "resources", "resourceTemplates"};
    enum catalog_kind kind = permit_listed_kind(call->method);
    struct view *view = call->scope->view;
    uint64_t generation = view_generation(view, kind);
    struct span cursor;
    size_t from = 0, count = view_count(view, kind), page = (size_t)call->gate->config->limits.page_size;
    if (params_find(&call->params, NULL, "cursor", &cursor) &&
        (!call_text_param(call, NULL, "cursor", &cursor) ||
         !cursor_read(call->scope, kind, generation, cursor, &from) || from > count))
        return call_fail(call, ERR_BAD_CURSOR, "cursor");
    call->session->listed |= 1U << kind;
    struct buf *out = call_begin_result(call);
    buf_printf(out, "{\"%s\":[", members[kind]);
    size_t to = put_page(call, kind, from, page, out);
    buf_put_char(out, ']');
    if (to < count) {
        buf_put_text(out, ",\"nextCursor\":\"");
        cursor_put(call->scope, kind, generation, to, out);
        buf_put_char(out, '"');
    }
    buf_put_char(out, '}');
    return PHASE_REPLY;
}

// ---- dispatch: sent to the server -----------------------------------------------------------

// Finds the member of the params that names the item.
static bool find_target_param(const struct call *call, struct span *raw)
{
    switch (call->method) {
    case METHOD_TOOLS_CALL:
    case METHOD_PROMPTS_GET: return params_find(&call->params, NULL, "name", raw);
    case METHOD_COMPLETE: return params_find(&call->params, "ref", call->by_uri ? "uri" : "name", raw);
    case METHOD_TASKS_GET:
    case METHOD_TASKS_RESULT:
    case METHOD_TASKS_CANCEL: return params_find(&call->params, NULL, "taskId", raw);
    default: return params_find(&call->params, NULL, "uri", raw);
    }
}

// Puts the caller's params, with three values replaced: the name of the item, the progress token, and the id of a related task.
static void put_params(struct call *call, struct outgoing_swap task, struct pieces *out)
{
    struct outgoing_swap swaps[3] = {{.with = call->target, .text = true}, {{0}, {0}, false}, task};
    char token[24];
    (void)find_target_param(call, &swaps[0].old);
    if (params_find(&call->params, "_meta", "progressToken", &swaps[1].old)) {
        call->progress_token = swaps[1].old;
        swaps[1].with = span_make(token, (size_t)snprintf(token, sizeof token, "%" PRIu64, call->request.id));
    }
    outgoing_put(call, swaps, 3, out);
}

static void on_server_progress(struct upstream_request *request, struct span params)
{
    struct call *call = request->arg;
    if (call->progress_token.at)
        call_tell(call, notice_text(call->session, call->link, METHOD_PROGRESS, params, call->progress_token));
}

// Remembers the owner of a new task, and the session that gets its progress.
static void note_task(struct call *call, struct span result)
{
    struct span task, raw;
    if (upstream_abilities(call->link->upstream)->tasks && scan_find(result, "task", &task) &&
        scan_find(task, "taskId", &raw) && scan_is_string(raw)) {
        task_note_made(call, raw);
        idle_note_task(call->link, task);
    }
}

static void take_failure(struct call *call, const struct err *err)
{
    call->err = *err;
    if (err->code == ERR_UPSTREAM_DIED || err->code == ERR_UNAVAILABLE)
        upstream_add_stderr(call->link->upstream, &call->err);
}

// The result of a task takes as long as the task, which says nothing about the server.
static void count_reply(const struct call *call, const struct upstream_reply *reply)
{
    const char *server = upstream_server(call->link->upstream)->name;
    if (call->method != METHOD_TASKS_RESULT)
        server_runtime_count(server_runtime_get(call->link->tenant, server), clock_now_us() - call->sent_us,
                             reply->failure != NULL);
}

static void on_server_reply(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct call *call = request->arg;
    count_reply(call, reply);
    source_answered(call->link->source);
    if (reply->error.at && reply->error.len <= MESSAGE_LARGE)
        ask_note_error(call->link, call->session, reply->error);
    if (reply->owner && memory_hold_reply(call, reply->owner)) {
        shaping_start(call, reply);
        return;
    }
    list_remove(&call->link_node);
    if (reply->failure)
        take_failure(call, reply->failure);
    else if (!reply->owner)
        call->reply = reply;
    if (reply->result.at && call->method == METHOD_TOOLS_CALL)
        note_task(call, reply->result);
    call_resume(call);
}

static enum phase_result do_forward(struct call *call)
{
    struct pieces text = {0};
    struct outgoing_swap task;
    struct span wanted;
    if (!outgoing_task(call, call->link, &task))
        return call_fail(call, ERR_UNKNOWN_TASK, "params._meta names a task that is not the caller's");
    call->request.may_send = call->gate->runner->may_send;
    call->request.on_reply = on_server_reply;
    call->request.on_progress = on_server_progress;
    call->request.arg = call;
    call->request.who = call->identity;
    if (call->method == METHOD_TOOLS_CALL)
        call->request.timeout_ms = server_tool_timeout(upstream_server(call->link->upstream), call->target);
    call->request.memory = call->session->memory;
    upstream_request_reserve(call->link->upstream, &call->request);
    buf_reserve(&text.tail, (call->message.params.len < SHARED_MIN ? call->message.params.len : 0) + 256);
    message_begin_request(&text.tail, call->request.id, method_text(call->method));
    buf_put_text(&text.tail, ",\"params\":");
    put_params(call, task, &text);
    buf_put_char(&text.tail, '}');
    list_append(&call->link->calls, &call->link_node);
    if (call->method == METHOD_TOOLS_CALL && params_find(&call->params, NULL, "task", &wanted))
        task_news_expect(call);
    call_set_state(call, CALL_DISPATCHED);
    idle_note_call(call);
    call->sent_us = clock_now_us();
    upstream_request_send_message(&call->request, pieces_take(&text));
    if (call->method == METHOD_TASKS_RESULT)  // it waits for the end of the task
        upstream_request_hold(&call->request, upstream_server(call->link->upstream)->max_timeout_ms);
    return PHASE_WAIT;
}

static enum phase_result do_complete(struct call *call)
{
    const struct upstream *upstream = call->link->upstream;
    if (upstream_revision(upstream) != REVISION_NONE && !upstream_abilities(upstream)->completions) {
        buf_put_text(call_begin_result(call), "{\"completion\":{\"values\":[],\"hasMore\":false}}");
        return PHASE_REPLY;
    }
    return do_forward(call);
}

static void on_subscribed(struct upstream_request *request, const struct upstream_reply *reply)
{
    struct call *call = request->arg;
    struct upstream_reply empty = {.result = span_of("{}")};  // the answer is empty, even if the server's is not
    struct err err;
    struct upstream_reply denied = {.failure = &err};
    if (reply->result.at && !request->may_send(request, &err)) {  // allowed when it was sent, but no longer
        subscription_give_up(call->link, call->target);
        reply = &denied;
    } else if (reply->result.at) {
        subscription_begin(call->session, call->link, call->target);
        reply = &empty;
    }
    on_server_reply(request, reply);
}

// Sent even if the server does not declare subscriptions, because the Python SDK 1.x never declares them. A server without
// subscriptions answers with an error.
static enum phase_result do_subscribe(struct call *call)
{
    if (call->session->subscribed.count >= SUBSCRIPTIONS_MAX)
        return call_fail(call, ERR_LIMITED, "too many subscriptions in one session (at most %d)", SUBSCRIPTIONS_MAX);
    if (!subscription_is_first(call->link, call->target)) {
        subscription_begin(call->session, call->link, call->target);
        return PHASE_REPLY;
    }
    enum phase_result result = do_forward(call);
    call->request.on_reply = on_subscribed;
    return result;
}

static enum phase_result do_unsubscribe(struct call *call)
{
    subscription_remove(call->session, call->link, call->target);
    return PHASE_REPLY;
}

void dispatch_abandon(struct call *call, const char *reason)
{
    upstream_request_cancel(&call->request, reason);
    shaping_drop(call);
    task_list_abandon(call, reason);
}

// ---- notifications --------------------------------------------------------------------------

static enum phase_result on_initialized(struct call *call)
{
    if (call->session->state == SESSION_LIVE)  // the notification may be repeated
        session_set_state(call->session, SESSION_READY);
    roots_session_ready(call->session);
    return PHASE_REPLY;
}

// Cancels a call, and passes on the caller's params. The request id in them is replaced by that of the call's request to its server.
static void cancel(struct call *call, struct call *other, struct span id)
{
    static const char reason[] = "cancelled by the caller";
    struct upstream *upstream = other->request.upstream;
    char text[24];
    struct span own = span_make(text, (size_t)snprintf(text, sizeof text, "%" PRIu64, other->request.id));
    if (upstream_request_forget(&other->request) && !outgoing_notify(call, other->link, id, own))
        upstream_message_cancelled(upstream, other->request.id, reason);
    call_end_silently(other, reason);
}

static enum phase_result on_cancelled(struct call *call)
{
    struct span id;
    if (!params_find(&call->params, NULL, "requestId", &id))
        return PHASE_REPLY;
    list_each(node, &call->session->calls) {
        struct call *other = list_entry(node, struct call, session_node);
        if (other == call || other->message.kind != MESSAGE_REQUEST || !span_equal(other->message.id, id) ||
            other->method == METHOD_INITIALIZE)
            continue;
        cancel(call, other, id);
        break;
    }
    return PHASE_REPLY;
}

static enum phase_result on_progress(struct call *call)
{
    struct span token;
    if (params_find(&call->params, NULL, "progressToken", &token))
        ask_on_progress(call, token);
    return PHASE_REPLY;
}

static enum phase_result on_roots_changed(struct call *call)
{
    roots_changed(call->session, call->message.params);
    return PHASE_REPLY;
}

static enum phase_result on_task_status(struct call *call)
{
    caller_task_on_status(call->session, call->message.params);
    return PHASE_REPLY;
}

enum phase_result dispatch_call(struct call *call)
{
    bool waits_itself = call->method == METHOD_TASKS_LIST || call->method == METHOD_INITIALIZE;
    if (call->state == CALL_DISPATCHED && !waits_itself)
        return call->err.code ? PHASE_FAIL : PHASE_REPLY;
    switch (call->op) {
    case ARRIVAL_LISTEN: return do_listen(call);
    case ARRIVAL_PIPE: return do_pipe(call);
    case ARRIVAL_END: return PHASE_REPLY;
    case ARRIVAL_UNREAD:
    case ARRIVAL_MESSAGE: break;
    }
    const struct method_row *row = &rows[call->method];
    switch (call->message.kind) {
    case MESSAGE_REQUEST: return row->dispatch(call);
    case MESSAGE_NOTIFICATION:
        return row->notification ? row->dispatch(call) : PHASE_REPLY;  // unknown notifications are ignored
    case MESSAGE_RESULT:
    case MESSAGE_ERROR: ask_on_answer(call->session, &call->message, call->body); return PHASE_REPLY;
    case MESSAGE_INVALID: break;
    }
    return call_fail(call, ERR_INTERNAL, "no message to dispatch");
}
