// Owns questions of servers to callers (sampling, elicitation, roots): finding the caller, carrying the
// question there and the answer back, and answering for callers who cannot or are gone.
//
// Which caller? The one whose call's own stream brought the question; else the session that has the
// server to itself; else the only session with a call in flight there. Otherwise nobody, and the server
// gets a refusal: a guess would show one person's question to another. Without a call, which was allowed, the
// policy is asked whether the server may reach that session at all.
#include "base/log.h"
#include "base/mem.h"
#include "base/pieces.h"
#include "base/scan.h"
#include "call.h"
#include "mcp/rewrite.h"
#include <stdlib.h>

#define ELICITED_MAX 1000

struct ask {
    uint64_t id;  // towards the caller
    struct link *link;
    struct session *session;
    enum method method;
    char *server_id;     // raw
    char *server_token;  // raw progressToken of the server, or NULL
    struct loop_timer timer;
};

// Answers for a caller that is not there or cannot.
static void refuse(struct upstream *upstream, struct span id, enum method method, const char *why)
{
    if (method == METHOD_ROOTS_LIST)
        upstream_answer(upstream, id, span_of("{\"roots\":[]}"));
    else if (method == METHOD_ELICIT)
        upstream_answer(upstream, id, span_of("{\"action\":\"cancel\"}"));
    else
        upstream_refuse(upstream, id, method == METHOD_SAMPLING ? -32603 : -32601, why);
}

static void ask_free(void *object)
{
    struct ask *ask = object;
    free(ask->server_id);
    free(ask->server_token);
    free(ask);
}

static void ask_end(struct ask *ask)
{
    struct gate *gate = ask->session->gate;
    loop_timer_stop(gate->loop, &ask->timer);
    map_remove(&ask->session->asks, map_key_u64(&ask->id));
    map_remove(&ask->link->asks, span_of(ask->server_id));
    loop_reap(gate->loop, ask, ask_free);
}

static void tell_cancelled(const struct ask *ask, const char *reason)
{
    struct buf params = {0}, text = {0};
    buf_put_text(&params, "{\"requestId\":");
    buf_put_int(&params, (int64_t)ask->id);
    buf_printf(&params, ",\"reason\":\"%s\"}", reason);
    message_put_notification(&text, method_text(METHOD_CANCELLED), buf_span(&params));
    session_tell(ask->session, blob_take(&text));
    buf_release(&params);
}

static void on_too_late(struct loop_timer *timer)
{
    struct ask *ask = timer->arg;
    tell_cancelled(ask, "timeout");
    refuse(ask->link->upstream, span_of(ask->server_id), ask->method, "the caller did not answer in time");
    ask_end(ask);
}

// ---- finding the caller ---------------------------------------------------------------------

static struct call *only_call(const struct link *link)
{
    struct call *found = NULL;
    list_each(node, &link->calls) {
        struct call *call = list_entry(node, struct call, link_node);
        if (found && found->session != call->session)
            return NULL;
        found = call;
    }
    return found;
}

static const char *cannot(const struct session *session, enum method method, struct span params)
{
    const struct session_abilities *can = &session->can;
    struct span value;
    bool url = scan_find(params, "mode", &value) && scan_is_string(value) && scan_key_is(value, "url");
    if (method == METHOD_ROOTS_LIST)
        return can->roots ? NULL : "the caller has no roots";
    if (method == METHOD_SAMPLING)
        return !can->sampling                                               ? "the caller does not sample"
               : scan_find(params, "tools", &value) && !can->sampling_tools ? "the caller samples without tools"
                                                                            : NULL;
    if (method == METHOD_ELICIT)
        return (url ? can->elicit_url : can->elicit_form) ? NULL : "the caller does not support this elicitation";
    return "method not found";
}

// ---- the question ---------------------------------------------------------------------------

enum part { PART_TOKEN, PART_MESSAGE };

static const struct rewrite_rule rules[] = {
    {{"_meta", "progressToken"}, PART_TOKEN},
    {{"message"}, PART_MESSAGE},
};

struct question {
    struct ask *ask;
    bool name_server;
};

static bool translate(void *arg, int what, struct span raw, struct buf *out)
{
    const struct question *question = arg;
    struct ask *ask = question->ask;
    if (what == PART_TOKEN && raw.len > PARAMS_TOKEN_MAX)
        return false;  // progress of the caller leads nowhere then
    if (what == PART_TOKEN) {
        ask->server_token = mem_span(raw);
        buf_put_int(out, (int64_t)ask->id);
        return true;
    }
    if (ask->method != METHOD_ELICIT || !question->name_server || !scan_is_string(raw))
        return false;
    struct buf text = {0};  // people must see who asks
    buf_printf(&text, "[%s] ", upstream_server(ask->link->upstream)->name);
    scan_decode(raw, &text);
    scan_encode(buf_span(&text), out);
    buf_release(&text);
    return true;
}

static void remember_elicitation(struct link *link, const struct session *session, struct span params)
{
    struct span raw;
    if (!scan_find(params, "elicitationId", &raw) || !scan_is_string(raw) || raw.len > PARAMS_TOKEN_MAX)
        return;
    if (link->elicited.count >= ELICITED_MAX)
        free(map_take_one(&link->elicited));
    free(map_put(&link->elicited, raw, mem_string(session->id)));
}

static void put_question(struct ask *ask, const struct message *message, struct buf *out)
{
    struct scope *scope = ask->session->scope;
    struct shape shape = shape_of(scope, ask->link, ask->session->identity);
    struct question question = {ask, view_prefix(scope->view, ask->link->source).len != 0};
    struct buf id = {0}, first = {0}, second = {0};
    struct span params = message->params;
    if (params.len && shape_from_server(&shape, params, &first))
        params = buf_span(&first);
    if (params.len && rewrite_json(params, rules, 2, translate, &question, &second))
        params = buf_span(&second);
    buf_put_int(&id, (int64_t)ask->id);
    message_put_request(out, buf_span(&id), method_text(ask->method), params);
    buf_release(&id);
    buf_release(&first);
    buf_release(&second);
}

void ask_start(struct link *link, const struct message *message, struct upstream_request *origin)
{
    enum method method = method_find(message->method);
    struct call *call = origin ? call_of_request(link, origin) : NULL;
    // What came on the stream of something that is no call (a list we fetched) belongs to nobody.
    if (!call && (link->owner || !origin))
        call = only_call(link);
    struct session *session = call ? call->session : link->owner;
    const char *problem = method == METHOD_UNKNOWN              ? "method not found"
                          : !session                            ? "no caller can be asked: several are connected"
                          : !call && !reach_sees(session, link) ? "the caller is not ready"
                          : session->state != SESSION_LIVE || !session->ready ? "the caller is not ready"
                          : session->asks.count >= 1000                       ? "too many questions are open"
                          : map_find(&link->asks, message->id)                ? "a question with this id is open"
                                                               : cannot(session, method, message->params);
    if (problem) {
        log_debug("question refused", LOG_STR("server", upstream_server(link->upstream)->name),
                  LOG_SPAN("method", message->method), LOG_STR("why", problem));
        refuse(link->upstream, message->id, method, problem);
        return;
    }
    struct ask *ask = mem_new(struct ask);
    struct buf text = {0};
    ask->id = ++session->next_ask;
    ask->link = link;
    ask->session = session;
    ask->method = method;
    ask->server_id = mem_span(message->id);
    ask->timer = (struct loop_timer){.on_due = on_too_late, .arg = ask, .name = "question timeout"};
    loop_timer_set(session->gate->loop, &ask->timer, session->gate->config->timeouts.ask_ms);
    map_put(&session->asks, map_key_u64(&ask->id), ask);
    map_put(&link->asks, message->id, ask);
    if (method == METHOD_ELICIT)
        remember_elicitation(link, session, message->params);
    put_question(ask, message, &text);
    // While a person thinks, the call that asked does not time out.
    if (call)
        upstream_hold(&call->request, session->gate->config->timeouts.ask_ms);
    if (call && call->session == session)
        call_tell(call, blob_take(&text));
    else
        session_tell(session, blob_take(&text));
}

// ---- the answer -----------------------------------------------------------------------------

static struct ask *find(struct session *session, struct span raw)
{
    uint64_t id;
    return span_to_u64(raw, &id) ? map_find(&session->asks, map_key_u64(&id)) : NULL;
}

// The last open question is answered: the calls of this caller have their usual time again.
static void let_go(const struct ask *ask)
{
    list_each(node, &ask->link->calls) {
        struct call *call = list_entry(node, struct call, link_node);
        if (call->session == ask->session)
            upstream_hold(&call->request, 0);
    }
}

// What the caller answered, under the id of the server; a large one stays in the body.
static struct blob *translate_answer(const struct ask *ask, const struct message *message, struct blob *body)
{
    struct pieces text = {0};
    bool ok = message->kind == MESSAGE_RESULT;
    buf_printf(&text.tail, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"%s\":", ask->server_id, ok ? "result" : "error");
    pieces_share(&text, body, ok ? message->result : message->error);
    buf_put_char(&text.tail, '}');
    return pieces_take(&text);
}

void ask_on_answer(struct session *session, const struct message *message, struct blob *body)
{
    struct ask *ask = find(session, message->id);
    if (!ask)
        return;
    if (session->asks.count == 1)
        let_go(ask);
    upstream_pass(ask->link->upstream, translate_answer(ask, message, body));
    ask_end(ask);
}

void ask_on_progress(struct session *session, struct span params, struct span token)
{
    struct ask *ask = find(session, token);
    if (!ask || !ask->server_token)
        return;
    struct buf changed = {0};
    buf_put(&changed, params.at, (size_t)(token.at - params.at));
    buf_put_text(&changed, ask->server_token);
    buf_put(&changed, token.at + token.len, (size_t)(params.at + params.len - (token.at + token.len)));
    upstream_notify(ask->link->upstream, method_text(METHOD_PROGRESS), buf_span(&changed));
    buf_release(&changed);
    loop_timer_set(session->gate->loop, &ask->timer, session->gate->config->timeouts.ask_ms);
}

// The server takes a question back.
void ask_on_cancelled(struct link *link, struct span request_id)
{
    struct ask *ask = map_find(&link->asks, request_id);
    if (!ask)
        return;
    tell_cancelled(ask, "the server took it back");
    ask_end(ask);
}

void ask_drop_session(struct session *session)
{
    void *value;
    for (size_t at = 0; map_next(&session->asks, &at, NULL, &value);) {
        struct ask *ask = value;
        refuse(ask->link->upstream, span_of(ask->server_id), ask->method, "the caller is gone");
        ask_end(ask);
    }
}

void ask_drop_link(struct link *link)
{
    void *value;
    for (size_t at = 0; map_next(&link->asks, &at, NULL, &value);) {
        struct ask *ask = value;
        tell_cancelled(ask, "the server is gone");
        ask_end(ask);
    }
}
