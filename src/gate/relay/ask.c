// Owns questions of servers to callers (sampling, elicitation, roots, and tasks of them): finds the caller, passes on the question
// and the answer, and answers for callers that do not support the question or have disconnected.
//
// The caller is, in this order: the caller of the call on whose own stream the question came; the session that has the server to
// itself; the only session with a call in flight at the server. Otherwise the question is refused, because a guess could show a
// question to the wrong user. Without a call, which the policy has allowed, the server must be visible to the session.
#include "base/log.h"
#include "base/mem.h"
#include "base/pieces.h"
#include "base/scan.h"
#include "mcp/rewrite.h"
#include "room.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ELICITED_MAX 1000

struct ask {
    uint64_t id;  // as the caller sees it
    struct link *link;
    struct session *session;
    enum method method;
    char *server_id;     // raw
    char *server_token;  // raw progressToken of the server, or NULL
    uint64_t request;    // id of the request on whose stream the question came; 0: on the session's own stream
    struct loop_timer timer;
};

// Answers in place of a caller that has disconnected or does not support the question.
static void refuse(struct upstream *upstream, struct span id, enum method method, int code, const char *why)
{
    if (method == METHOD_ROOTS_LIST)
        upstream_message_answer(upstream, id, span_of("{\"roots\":[]}"));
    else if (method == METHOD_ELICIT)
        upstream_message_answer(upstream, id, span_of("{\"action\":\"cancel\"}"));
    else
        upstream_message_refuse(upstream, id, code, why);
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

// Sends the caller notifications/cancelled where the question was sent, if that stream still exists.
static void tell_cancelled(const struct ask *ask, struct span params)
{
    char id[24];
    struct span own = span_make(id, (size_t)snprintf(id, sizeof id, "%" PRIu64, ask->id));
    struct blob *text = notice_text(ask->session, ask->link, METHOD_CANCELLED, params, own);
    list_each(node, &ask->link->calls) {
        struct call *call = list_entry(node, struct call, link_node);
        if (call->request.id == ask->request && call->session == ask->session) {
            call_tell(call, text);
            return;
        }
    }
    session_tell(ask->session, text);
}

static void on_too_late(struct loop_timer *timer)
{
    struct ask *ask = timer->arg;
    tell_cancelled(ask, span_of("{\"requestId\":0,\"reason\":\"timeout\"}"));
    refuse(ask->link->upstream, span_of(ask->server_id), ask->method, -32603, "the caller did not answer in time");
    ask_end(ask);
}

// ---- finding the caller ---------------------------------------------------------------------

// Finds the only call in flight. If the question belongs to a known task, only calls of its owner count, and a call that waits for
// the task's result comes first.
static struct call *only_call(const struct link *link, struct span params)
{
    struct call *found = NULL;
    struct buf task = {0};
    bool of_task = task_related(link, params, &task) && task_known(link, buf_span(&task)), several = false;
    list_each(node, &link->calls) {
        struct call *call = list_entry(node, struct call, link_node);
        if (of_task && !task_owned(link, call->session, buf_span(&task)))
            continue;
        bool waits = of_task && call->method == METHOD_TASKS_RESULT && span_equal(call->target, buf_span(&task));
        several = !waits && (several || (found && found->session != call->session));
        found = call;
        if (waits)
            break;
    }
    buf_release(&task);
    return several ? NULL : found;
}

// Why the caller cannot be asked; NULL: it can. `code` is for questions that have no default answer.
static const char *cannot(const struct link *link, const struct session *session, const struct message *message,
                          int *code)
{
    const struct session_abilities *can = &session->can;
    enum method method = method_find(message->method);
    struct span params = message->params, value;
    bool url = scan_find(params, "mode", &value) && scan_is_string(value) && scan_key_is(value, "url");
    if (method == METHOD_ROOTS_LIST)
        return !can->roots                     ? "the caller does not support roots"
               : roots_may_pass(link, session) ? NULL
                                               : "several identities use this server";
    if (method == METHOD_SAMPLING)
        return !can->sampling ? "the caller does not support sampling"
               : scan_find(params, "tools", &value) && !can->sampling_tools
                   ? "the caller does not support sampling with tools"
                   : NULL;
    if (caller_task_asks(method))
        return caller_task_problem(link, session, message, code);
    if (method == METHOD_ELICIT)
        return (url ? can->elicit_url : can->elicit_form) ? NULL : "the caller does not support this elicitation";
    *code = -32601;
    return "method not found";
}

// ---- the question ---------------------------------------------------------------------------

enum { PART_TOKEN, PART_MESSAGE };

static const struct rewrite_rule rules[] = {
    {{"_meta", "progressToken"}, PART_TOKEN},
    {{"message"}, PART_MESSAGE},
};

struct ask_rewrite {
    struct ask *ask;
    bool name_server;
};

static bool translate(void *arg, int what, struct span raw, struct buf *out)
{
    const struct ask_rewrite *rewrite = arg;
    struct ask *ask = rewrite->ask;
    if (what == PART_TOKEN && raw.len > PARAMS_TOKEN_MAX)
        return false;  // the caller's progress is then not passed on
    if (what == PART_TOKEN) {
        ask->server_token = mem_span(raw);
        buf_put_int(out, (int64_t)ask->id);
        return true;
    }
    if (ask->method != METHOD_ELICIT || !rewrite->name_server || !scan_is_string(raw))
        return false;
    // The user must see which server asks. The text itself stays unchanged.
    struct buf text = {0};
    buf_printf(&text, "[%s] ", upstream_server(ask->link->upstream)->name);
    scan_put_before(buf_span(&text), raw, out);
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

// A server may refuse a call until the user has opened a URL (-32042), and notify when the elicitation is complete.
void ask_note_error(struct link *link, const struct session *session, struct span error)
{
    struct span code, data, list, one;
    if (!scan_find(error, "code", &code) || !span_is(code, "-32042") || !scan_find(error, "data", &data) ||
        !scan_find(data, "elicitations", &list) || !scan_is_array(list))
        return;
    for (struct scan_walk walk = scan_walk(list); scan_element(&walk, &one);)
        remember_elicitation(link, session, one);
}

static void put_question(struct ask *ask, const struct message *message, struct buf *out)
{
    struct scope *scope = ask->session->scope;
    struct shape shape = shape_of(scope, ask->link, ask->session->identity, ask->method);
    struct ask_rewrite rewrite = {ask, view_prefix(scope->view, ask->link->source).len != 0};
    struct buf id = {0}, first = {0}, second = {0};
    struct span params = message->params;
    if (caller_task_asks(ask->method)) {  // the id is the caller's own
        caller_task_put_params(ask->method, params, &first);
        params = buf_span(&first);
    } else if (params.len && shape_from_server(&shape, params, &first)) {
        params = buf_span(&first);
    }
    if (params.len && rewrite_json(params, rules, 2, translate, &rewrite, &second))
        params = buf_span(&second);
    buf_put_int(&id, (int64_t)ask->id);
    message_put_request(out, buf_span(&id), method_text(ask->method), params);
    buf_release(&id);
    buf_release(&first);
    buf_release(&second);
}

static struct ask *ask_new(struct link *link, struct session *session, const struct message *message)
{
    struct ask *ask = mem_new(struct ask);
    ask->id = ++session->next_ask;
    ask->link = link;
    ask->session = session;
    ask->method = method_find(message->method);
    ask->server_id = mem_span(message->id);
    ask->timer = (struct loop_timer){.on_due = on_too_late, .arg = ask, .name = "question timeout"};
    loop_timer_set(session->gate->loop, &ask->timer, session->gate->config->timeouts.ask_ms);
    map_put(&session->asks, map_key_u64(&ask->id), ask);
    map_put(&link->asks, message->id, ask);
    return ask;
}

void ask_start(struct link *link, const struct message *message, struct upstream_request *origin)
{
    enum method method = method_find(message->method);
    struct call *call = origin ? call_of_request(link, origin) : NULL;
    // A question on the stream of the gateway's own request, such as the fetch of a list, belongs to no caller.
    if (!call && (link->owner || !origin))
        call = only_call(link, message->params);
    struct session *session = call ? call->session : link->owner;
    if (method == METHOD_ROOTS_LIST) {
        link->roots_asked = true;
        session = session || origin ? session : roots_only_session(link);
    }
    int code = method == METHOD_SAMPLING || caller_task_asks(method) ? -32603 : -32601;
    const char *problem = method == METHOD_UNKNOWN                   ? "method not found"
                          : !session                                 ? "cannot determine which caller to ask"
                          : !call && !visibility_sees(session, link) ? "the caller is not ready"
                          : session->state != SESSION_READY          ? "the caller is not ready"
                          : session->asks.count >= 1000              ? "too many questions are open"
                          : map_find(&link->asks, message->id)       ? "a question with this id is already open"
                                                                     : cannot(link, session, message, &code);
    if (problem) {
        log_debug("question refused", LOG_STR("server", upstream_server(link->upstream)->name),
                  LOG_SPAN("method", message->method), LOG_STR("why", problem));
        refuse(link->upstream, message->id, method, code, problem);
        return;
    }
    struct ask *ask = ask_new(link, session, message);
    struct buf text = {0};
    if (method == METHOD_ELICIT)
        remember_elicitation(link, session, message->params);
    put_question(ask, message, &text);
    // The call does not time out while the user answers.
    if (call)
        upstream_request_hold(&call->request, session->gate->config->timeouts.ask_ms);
    if (call && call->session == session) {
        ask->request = call->request.id;
        call_tell(call, blob_take(&text));
    } else
        session_tell(session, blob_take(&text));
}

// ---- the answer -----------------------------------------------------------------------------

static struct ask *find(struct session *session, struct span raw)
{
    uint64_t id;
    return span_to_u64(raw, &id) ? map_find(&session->asks, map_key_u64(&id)) : NULL;
}

// After the last open question: the calls of this caller get their usual timeout again.
static void let_go(const struct ask *ask)
{
    list_each(node, &ask->link->calls) {
        struct call *call = list_entry(node, struct call, link_node);
        if (call->session == ask->session)
            upstream_request_hold(&call->request, 0);
    }
}

// Puts the caller's answer under the server's id. A large answer is not copied.
static struct blob *translate_answer(const struct ask *ask, const struct message *message, struct blob *body)
{
    struct pieces text = {0};
    bool ok = message->kind == MESSAGE_RESULT;
    buf_printf(&text.tail, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"%s\":", ask->server_id, ok ? "result" : "error");
    struct buf changed = {0};
    if (ok && ask->method == METHOD_TASKS_LIST)
        caller_task_put_list(ask->link, message->result, &text.tail);
    else if (ok && message->result.len <= MESSAGE_LARGE &&
             shape_answer(ask->session, ask->link, message->result, &changed))
        buf_put_span(&text.tail, buf_span(&changed));
    else
        pieces_share(&text, body, ok ? message->result : message->error);
    buf_release(&changed);
    buf_put_char(&text.tail, '}');
    return pieces_take(&text);
}

static void pass_answer(const struct ask *ask, const struct message *message, struct blob *body)
{
    struct link *link = ask->link;
    bool roots = ask->method == METHOD_ROOTS_LIST && message->kind == MESSAGE_RESULT;
    if (roots && !roots_may_pass(link, ask->session)) {
        refuse(link->upstream, span_of(ask->server_id), ask->method, -32603, "several identities use this server now");
        return;
    }
    if (roots)
        roots_given(link, ask->session);
    else if (link->owner == ask->session && message->kind == MESSAGE_RESULT && !caller_task_asks(ask->method))
        caller_task_note(link, message->result);
    upstream_message_pass(link->upstream, translate_answer(ask, message, body));
}

static void ask_settle(struct ask *ask)
{
    if (ask->session->asks.count == 1)
        let_go(ask);
    ask_end(ask);
}

void ask_on_answer(struct session *session, const struct message *message, struct blob *body)
{
    struct ask *ask = find(session, message->id);
    if (!ask)
        return;
    pass_answer(ask, message, body);
    ask_settle(ask);
}

void ask_on_invalid(struct session *session, struct message *message)
{
    struct ask *ask = session && message->role != MESSAGE_ASKS ? find(session, message->id) : NULL;
    // The caller would read an error with the id of the question as the answer to a request of its own.
    if (ask || message->role == MESSAGE_ANSWERS)
        message->id = (struct span){0};
    if (!ask)
        return;
    upstream_message_refuse(ask->link->upstream, span_of(ask->server_id), -32603, "the caller's answer is not valid");
    ask_settle(ask);
}

void ask_on_progress(struct call *call, struct span token)
{
    struct ask *ask = find(call->session, token);
    if (ask && ask->server_token && outgoing_notify(call, ask->link, token, span_of(ask->server_token)))
        loop_timer_set(call->gate->loop, &ask->timer, call->gate->config->timeouts.ask_ms);
}

// The server cancels a question.
void ask_on_cancelled(struct link *link, struct span params)
{
    struct span id;
    struct ask *ask = scan_find(params, "requestId", &id) ? map_find(&link->asks, id) : NULL;
    if (!ask)
        return;
    tell_cancelled(ask, params);
    ask_end(ask);
}

void ask_drop_session(struct session *session)
{
    void *value;
    for (size_t at = 0; map_next(&session->asks, &at, NULL, &value);) {
        struct ask *ask = value;
        refuse(ask->link->upstream, span_of(ask->server_id), ask->method, -32603, "the caller has disconnected");
        ask_end(ask);
    }
}

void ask_drop_link(struct link *link)
{
    void *value;
    for (size_t at = 0; map_next(&link->asks, &at, NULL, &value);) {
        struct ask *ask = value;
        tell_cancelled(ask, span_of("{\"requestId\":0,\"reason\":\"the server has disconnected\"}"));
        ask_end(ask);
    }
}
