// Owns notifications of servers: list changes, resource updates, logs, status of tasks, and progress of tasks after
// the end of their calls. Each is passed only to the sessions that it concerns.
#include "base/log.h"
#include "base/mem.h"
#include "base/scan.h"
#include "mcp/rewrite.h"
#include "room.h"
#include <stdlib.h>

// ---- lists ----------------------------------------------------------------------------------

static const struct {
    unsigned kinds;
    enum method method;
} lists[FAN_OUT_TEXTS] = {
    {1U << CATALOG_TOOLS, METHOD_TOOLS_CHANGED},
    {1U << CATALOG_PROMPTS, METHOD_PROMPTS_CHANGED},
    {1U << CATALOG_RESOURCES | 1U << CATALOG_TEMPLATES, METHOD_RESOURCES_CHANGED},
};

// Each text is made when the first session needs it.
static bool tell_lists(struct session *session, unsigned kinds, struct blob **texts)
{
    bool told = false;
    for (size_t i = 0; i < FAN_OUT_TEXTS; i++) {
        if (session->state != SESSION_READY || !(session->listed & kinds & lists[i].kinds))
            continue;
        struct buf text = {0};
        if (!texts[i]) {
            message_put_notification(&text, method_text(lists[i].method), (struct span){0});
            texts[i] = blob_take(&text);
        }
        session_tell(session, blob_ref(texts[i]));
        told = true;
    }
    return told;
}

void relay_list_changed(struct session *session, unsigned kinds)
{
    struct blob *texts[FAN_OUT_TEXTS] = {0};
    (void)tell_lists(session, kinds, texts);
    for (size_t i = 0; i < FAN_OUT_TEXTS; i++)
        blob_unref(texts[i]);
}

static bool tell_changes(struct fan_out *fan_out, struct session *session)
{
    return visibility_allowed(session, fan_out->link) && tell_lists(session, fan_out->kinds, fan_out->texts);
}

void relay_lists_changed(struct link *link, unsigned kinds)
{
    // A queued fan-out of the same kind that has not started yet includes these kinds.
    struct list *last = link->fan_outs.prev;
    struct fan_out *queued = last == &link->fan_outs ? NULL : list_entry(last, struct fan_out, node);
    if (queued && queued->tell == tell_changes && !queued->use)
        queued->kinds |= kinds;
    else
        fan_out_start(&(struct fan_out){.link = link, .tell = tell_changes, .kinds = kinds});
}

// ---- to one caller or several ---------------------------------------------------------------

// The session's only call in flight on this link, which a notification of the server most likely belongs to.
static struct call *call_in_flight(const struct session *session, const struct link *link)
{
    struct call *found = NULL;
    list_each(node, &session->calls) {
        struct call *call = list_entry(node, struct call, session_node);
        if (call->link != link || !list_linked(&call->link_node))
            continue;
        if (found)
            return NULL;
        found = call;
    }
    return found;
}

static void tell(struct session *session, const struct link *link, struct blob *message)
{
    struct call *call = call_in_flight(session, link);
    if (call)
        call_tell(call, message);
    else
        session_tell(session, message);
}

// ---- logs -----------------------------------------------------------------------------------

static bool prefix_logger(void *arg, int what, struct span raw, struct buf *out)
{
    (void)what;
    struct buf name = {0};
    if (!scan_is_string(raw))
        return false;
    buf_printf(&name, "%s/", (const char *)arg);
    scan_put_before(buf_span(&name), raw, out);
    buf_release(&name);
    return true;
}

static struct blob *log_text(const struct session *session, const struct link *link, struct span params)
{
    static const struct rewrite_rule rule = {{"logger"}, 0};
    struct buf changed = {0};
    const char *server = upstream_server(link->upstream)->name;
    struct span logger;
    if (view_prefix(session->scope->view, link->source).len) {
        if (scan_find(params, "logger", &logger))
            (void)rewrite_json(params, &rule, 1, prefix_logger, (void *)(uintptr_t)server, &changed);
        else {
            buf_put_text(&changed, "{\"logger\":");
            scan_encode(span_of(server), &changed);
            buf_put_text(&changed, params.len > 2 ? "," : "");
            buf_put_span(&changed, span_after(params, 1));
        }
    }
    struct blob *text =
        notice_text(session, link, METHOD_LOG_MESSAGE, changed.len ? buf_span(&changed) : params, (struct span){0});
    buf_release(&changed);
    return text;
}

static bool tell_log(struct fan_out *fan_out, struct session *session)
{
    if (session->state != SESSION_READY || fan_out->level < session->level || !visibility_sees(session, fan_out->link))
        return false;
    if (!fan_out->texts[0])
        fan_out->texts[0] = log_text(session, fan_out->link, fan_out->params);
    tell(session, fan_out->link, blob_ref(fan_out->texts[0]));
    return true;
}

// A log message of a task is only for its owner.
static bool tell_task_log(struct fan_out *fan_out, struct session *session)
{
    if (session->state != SESSION_READY || fan_out->level < session->level ||
        !visibility_sees(session, fan_out->link) || !task_owned(fan_out->link, session, buf_span(&fan_out->key)))
        return false;
    tell(session, fan_out->link, log_text(session, fan_out->link, fan_out->params));
    return true;
}

static void relay_log(struct link *link, const struct message *message, struct call *origin)
{
    struct span raw;
    int level = scan_find(message->params, "level", &raw) ? level_parse(raw) : -1;
    struct session *session = origin ? origin->session : NULL;
    if (level < 0)
        return;
    if (origin) {
        if (session->state == SESSION_READY && level >= session->level)
            call_tell(origin, log_text(session, link, message->params));
        return;
    }
    struct fan_out news = {.link = link, .tell = tell_log, .params = message->params, .level = level};
    if (!link->owner && task_related(link, message->params, &news.key)) {
        news.tell = tell_task_log;
        task_news_put(&news);
    } else {
        fan_out_start(&news);
    }
}

// ---- the rest -------------------------------------------------------------------------------

// The status of a task goes to the sessions of its owner, while the policy allows the owner anything of the server.
static bool tell_status(struct fan_out *fan_out, struct session *session)
{
    const struct link *link = fan_out->link;
    if (!task_owned(link, session, buf_span(&fan_out->key)) || !visibility_allowed(session, link))
        return false;
    session_tell(session, notice_text(session, link, METHOD_TASK_STATUS, fan_out->params, (struct span){0}));
    return true;
}

static void relay_task_status(struct link *link, const struct message *message)
{
    struct span raw;
    struct fan_out news = {.link = link, .tell = tell_status, .params = message->params};
    if (!scan_find(message->params, "taskId", &raw) || !scan_is_string(raw))
        return;
    scan_decode(raw, &news.key);
    task_news_put(&news);
}

static void relay_task_progress(struct link *link, const struct message *message)
{
    struct span token;
    if (!scan_find(message->params, "progressToken", &token))
        return;
    const struct task_token *wanted = map_find(&link->task_tokens, token);
    struct session *session = wanted ? session_find(link->gate, span_of(wanted->session)) : NULL;
    if (!session || !visibility_allowed(session, link))
        return;
    session_tell(session, notice_text(session, link, METHOD_PROGRESS, message->params, span_of(wanted->token)));
}

static void relay_elicit_complete(struct link *link, const struct message *message)
{
    struct span raw;
    char *id = scan_find(message->params, "elicitationId", &raw) ? map_remove(&link->elicited, raw) : NULL;
    struct session *session = id ? session_find(link->gate, span_of(id)) : NULL;
    free(id);
    if (!session || !visibility_allowed(session, link))
        return;
    tell(session, link, notice_text(session, link, METHOD_ELICIT_COMPLETE, message->params, (struct span){0}));
}

void relay_notification(struct link *link, const struct message *message, struct upstream_request *origin)
{
    switch (method_find(message->method)) {
    case METHOD_TOOLS_CHANGED: source_changed(link->source, CATALOG_TOOLS); break;
    case METHOD_PROMPTS_CHANGED: source_changed(link->source, CATALOG_PROMPTS); break;
    case METHOD_RESOURCES_CHANGED: source_changed(link->source, CATALOG_RESOURCES); break;
    case METHOD_RESOURCE_UPDATED: subscription_fan_out(link, message); break;
    case METHOD_LOG_MESSAGE: relay_log(link, message, origin ? call_of_request(link, origin) : NULL); break;
    case METHOD_TASK_STATUS: relay_task_status(link, message); break;
    case METHOD_PROGRESS: relay_task_progress(link, message); break;
    case METHOD_ELICIT_COMPLETE: relay_elicit_complete(link, message); break;
    case METHOD_CANCELLED: ask_on_cancelled(link, message->params); break;
    default:
        log_debug("notification ignored", LOG_STR("server", upstream_server(link->upstream)->name),
                  LOG_SPAN("method", message->method));
        break;
    }
}
